#include "src/moe/expert_executor.h"

namespace moesaic {

void ExpertExecutor::forward(std::span<const std::byte* const> rows,
                             std::span<const std::int64_t> slot_begin, MatrixView<float> outputs,
                             GroupedGemm& gemm, ExpertScratch& scratch) const {
  if (rows.empty()) return;
  scratch.groups.clear();
  for (std::size_t slot = 0; slot + 1 < slot_begin.size(); ++slot) {
    const std::int64_t count = slot_begin[slot + 1] - slot_begin[slot];
    if (count == 0) continue;
    const ExpertWeights& expert = experts_[slot];
    scratch.groups.push_back({.first_row = slot_begin[slot],
                              .num_rows = count,
                              .gate = expert.gate,
                              .up = expert.up,
                              .down = expert.down});
  }
  gemm.run_mlp(
      {.rows = rows.data(),
       .num_rows = static_cast<std::int64_t>(rows.size()),
       .depth = experts_.front().gate.depth,
       .element = element_},
      scratch.groups, {},
      {.data = reinterpret_cast<std::byte*>(outputs.data()), .stride_bytes = outputs.stride() * 4});
}

}  // namespace moesaic
