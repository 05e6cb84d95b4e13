#include "kernels/attention_kernel.h"

#include <algorithm>

#include "kernels/cpu/attention_gradient_layout.h"
#include "kernels/cpu/attention_layout.h"

namespace moesaic {

std::int64_t attention_state_floats(std::int64_t value_dim) noexcept {
  return state_floats(value_dim);
}

std::int64_t attention_scratch_bytes(std::int64_t head_dim, std::int64_t value_dim) noexcept {
  return TileOrderScratch(head_dim, value_dim).bytes();  // f32 needs less
}

std::int64_t attention_gradient_scratch_bytes(std::int64_t num_rows, std::int64_t head_dim,
                                              std::int64_t value_dim) noexcept {
  return std::max(GradientScratch(num_rows, head_dim, value_dim).end * 4,
                  Bf16GradientScratch(num_rows, head_dim, value_dim).end);
}

}  // namespace moesaic
