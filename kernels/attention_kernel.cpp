#include "kernels/attention_kernel.h"

#include "kernels/format.h"

namespace moesaic {

std::int64_t attention_scratch_bytes(std::int64_t head_dim, std::int64_t value_dim) noexcept {
  // A query and a sum of values for each row, the sum in whole vectors.
  return kAttentionRows * (head_dim + round_up(value_dim, 16)) *
         static_cast<std::int64_t>(sizeof(float));
}

}  // namespace moesaic
