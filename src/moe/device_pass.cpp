#include "src/moe/device_pass.h"

#include <algorithm>

#include "base/device.h"
#include "kernels/cuda/mlp_products.h"

namespace moesaic {

std::int64_t DevicePassShape::rounded_bytes(std::int64_t inputs, std::int64_t rows) const noexcept {
  if (grouped_experts > 0) {
    return GroupedRoom{.rows = rows, .mlps = grouped_experts, .hidden = hidden, .width = width}
        .bytes();
  }
  if (activations == Nvfp4Activations::bf16) return 0;
  return std::max(inputs * rounded_row_bytes(hidden), rows * rounded_row_bytes(width));
}

std::int64_t device_pass_bytes(std::int64_t rows, const DevicePassShape& expert) {
  const std::int64_t row = 2 * expert.hidden + 2 * expert.width + 4 * expert.hidden + 4;
  return with_reserve(rows * (row + static_cast<std::int64_t>(sizeof(cuda::MlpTile))) +
                      expert.rounded_bytes(rows, rows));
}

std::int64_t pinned_pass_bytes(std::int64_t rows, std::int64_t hidden) {
  return with_reserve(rows * (2 * hidden + 4 * hidden + 4));
}

}  // namespace moesaic
