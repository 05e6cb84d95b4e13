#include "src/moe/expert_executor.h"

namespace moesaic {
namespace {

std::int64_t element_bytes(RowSource::Element element) {
  return element == RowSource::Element::bf16 ? 2 : 4;
}

}  // namespace

void ExpertExecutor::forward(std::span<const std::byte* const> rows,
                             std::span<const std::int64_t> slot_begin, MatrixView<float> outputs,
                             GroupedGemm& gemm, ExpertScratch& scratch) const {
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  if (num_rows == 0) return;
  const std::int64_t hidden = experts_.front().gate.depth;
  const std::int64_t intermediate = experts_.front().gate.rows;
  const std::int64_t gated_bytes = intermediate * element_bytes(element_);
  scratch.gated.reserve(num_rows * gated_bytes);
  scratch.gated_rows.clear();
  for (std::int64_t row = 0; row < num_rows; ++row) {
    scratch.gated_rows.push_back(scratch.gated.data() + row * gated_bytes);
  }

  // Both products walk the same groups: the slots that have rows.
  const auto set_groups = [&](auto&& weights_of) {
    scratch.groups.clear();
    for (std::size_t slot = 0; slot + 1 < slot_begin.size(); ++slot) {
      const std::int64_t count = slot_begin[slot + 1] - slot_begin[slot];
      if (count == 0) continue;
      GemmGroup group = weights_of(experts_[slot]);
      group.first_row = slot_begin[slot];
      group.num_rows = count;
      scratch.groups.push_back(group);
    }
  };
  set_groups([](const ExpertWeights& expert) {
    return GemmGroup{.weights = expert.gate, .up = expert.up};
  });
  gemm.run({.rows = rows.data(), .num_rows = num_rows, .depth = hidden, .element = element_},
           scratch.groups,
           {.data = scratch.gated.data(), .stride_bytes = gated_bytes, .element = element_});
  set_groups([](const ExpertWeights& expert) { return GemmGroup{.weights = expert.down}; });
  gemm.run(
      {.rows = scratch.gated_rows.data(),
       .num_rows = num_rows,
       .depth = intermediate,
       .element = element_},
      scratch.groups,
      {.data = reinterpret_cast<std::byte*>(outputs.data()), .stride_bytes = outputs.stride() * 4});
}

}  // namespace moesaic
