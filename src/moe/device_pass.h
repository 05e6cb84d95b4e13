#pragma once

#include <cstdint>

#include "kernels/grouped_gemm.h"

namespace moesaic {

/// The experts of a pass, as far as its memory goes.
struct DevicePassShape {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  Nvfp4Activations activations = Nvfp4Activations::bf16;
  /// Of a layer on one GPU, where the library of grouped products multiplies; 0: it does not.
  std::int64_t grouped_experts = 0;

  /// Of activations in nvfp4, or all that the library needs.
  [[nodiscard]] std::int64_t rounded_bytes(std::int64_t inputs, std::int64_t rows) const noexcept;
};
/// Bytes of the GPU's memory for a pass of so many rows, each of an input of its own.
[[nodiscard]] std::int64_t device_pass_bytes(std::int64_t rows, const DevicePassShape& expert);
/// And of the host's, page-locked.
[[nodiscard]] std::int64_t pinned_pass_bytes(std::int64_t rows, std::int64_t hidden);

}  // namespace moesaic
