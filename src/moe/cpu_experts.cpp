#include "src/moe/cpu_experts.h"

namespace moesaic {

void CpuExperts::start(const ExpertBatch& batch) {
  if (batch.rows.empty()) return;
  std::vector<MlpRows>& groups = work_->groups;
  groups.clear();
  for (std::size_t slot = 0; slot + 1 < batch.slot_begin.size(); ++slot) {
    const std::int64_t count = batch.slot_begin[slot + 1] - batch.slot_begin[slot];
    if (count == 0) continue;
    groups.push_back(
        {.first_row = batch.slot_begin[slot], .num_rows = count, .mlp = &experts_[slot]});
  }
  work_->mlps.forward({.x = {.rows = batch.rows.data(),
                             .num_rows = static_cast<std::int64_t>(batch.rows.size()),
                             .depth = experts_.front().weights.gate.depth,
                             .element = element_},
                       .groups = groups,
                       .y = batch.outputs});
}

}  // namespace moesaic
