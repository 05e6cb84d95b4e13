#pragma once

#include <vector>

#include "src/parallel/step_work.h"

namespace moesaic::test {

/// 128 experts, 8 a token, as Qwen3-30B-A3B has them; weights are round numbers.
inline CostModel test_model(int layers) {
  const CostLayer layer{.mixer = {{Format::bf16, 1e6, 2e6}},
                        .router = {{Format::f32, 1e4, 4e4}},
                        .common = {},
                        .expert = {{Format::int8, 3e6, 3e6}}};
  return {.hidden = 1000,
          .num_experts = 128,
          .experts_per_token = 8,
          .wire = {.row_bytes = 2032, .tag_bytes = 32, .result_bytes = 4000},
          .layers = std::vector(static_cast<std::size_t>(layers), layer),
          .head = {{Format::bf16, 5e6, 1e7}}};
}

}  // namespace moesaic::test
