#pragma once

#include <cstdint>

#include "base/device.h"

namespace moesaic {

/// Bytes of the records of a row of so many elements.
[[nodiscard]] std::int64_t row_record_bytes(std::int64_t depth) noexcept;

/// Rounds rows of activations to nvfp4 on a GPU, to the bits of kernels/nvfp4_activations.h. All
/// addresses are of the device's memory; each call asks for the work and waits for nothing.
class DeviceRowRounding {
 public:
  /// `device` must outlive this.
  explicit DeviceRowRounding(Device& device);

  struct Rows {
    CudaAddress from = 0;  // [count, depth] bf16
    std::int64_t count = 0;
    std::int64_t depth = 0;  // a multiple of 8
    float input_scale = 0;   // as round_to_nvfp4 has it
    CudaAddress there = 0;   // 0, or int32: how many of them there are; others are left alone
  };
  /// Rows become bf16 numbers, which hold them exactly; `to` may be where they are.
  void round(const Rows& rows, CudaAddress to);
  /// Rows become records of codes and scales (kernels/cuda/nvfp4_rows.h), `scales` [count] their
  /// powers of two.
  void quantize(const Rows& rows, CudaAddress records, CudaAddress scales);

 private:
  Device& device_;
  CudaFunction round_;
  CudaFunction quantize_;
};

}  // namespace moesaic
