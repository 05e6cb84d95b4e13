#pragma once

#include <cstdint>

#include "base/device.h"

namespace moesaic {

/// Whole rows on a GPU: picked, and summed up. All addresses are of the device's memory; each call
/// asks for the work and waits for nothing.
class DeviceRowMoves {
 public:
  /// `device` must outlive this.
  explicit DeviceRowMoves(Device& device);

  struct Gather {
    CudaAddress from = 0;
    CudaAddress to = 0;
    CudaAddress rows = 0;  // [count] int32
    std::int64_t count = 0;
    std::int64_t row_bytes = 0;  // a multiple of 16
  };
  /// Row i of `to` becomes row rows[i] of `from`.
  void gather(const Gather& what);

  struct Sum {
    CudaAddress results = 0;  // [any, hidden] f32
    CudaAddress places = 0;   // [tokens, topk] int32
    CudaAddress weights = 0;  // [tokens, topk] f32
    CudaAddress y = 0;        // [tokens, hidden] f32
    std::int64_t tokens = 0;
    std::int64_t topk = 0;
    std::int64_t hidden = 0;  // a multiple of 4
  };
  /// y[t] = sum of weights[t][c] * results[places[t][c]], by ascending c: to the bits of
  /// add_scaled. Places below 0 are none.
  void combine(const Sum& what);

 private:
  Device& device_;
  CudaFunction gather_;
  CudaFunction combine_;
};

}  // namespace moesaic
