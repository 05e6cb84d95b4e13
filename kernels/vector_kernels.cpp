#include "kernels/vector_kernels.h"

#include "kernels/format.h"

namespace moesaic {

std::int64_t attention_scratch_floats(std::int64_t head_dim) noexcept {
  // A query and a sum of values for each row, the sum in whole vectors.
  return kAttentionRows * (head_dim + round_up(head_dim, 16));
}

}  // namespace moesaic
