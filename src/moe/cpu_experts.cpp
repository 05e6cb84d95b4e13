#include "src/moe/cpu_experts.h"

namespace moesaic {

RowSource CpuExperts::source(std::span<const std::byte* const> rows) const {
  return {.rows = rows.data(),
          .num_rows = static_cast<std::int64_t>(rows.size()),
          .depth = experts_.front().weights.gate.depth,
          .element = element_};
}

void CpuExperts::make_groups(std::span<const std::int64_t> slot_begin, std::size_t first_slot) {
  work_->groups.clear();
  for (std::size_t slot = 0; slot + 1 < slot_begin.size(); ++slot) {
    const std::int64_t count = slot_begin[slot + 1] - slot_begin[slot];
    if (count == 0 || (!own_.empty() && !own_[first_slot + slot])) continue;
    work_->groups.push_back({.first_row = slot_begin[slot] - slot_begin.front(),
                             .num_rows = count,
                             .mlp = &experts_[first_slot + slot]});
  }
}

void CpuExperts::start(const ExpertBatch& batch) {
  if (batch.rows.empty()) return;
  make_groups(batch.slot_begin, batch.first_slot);
  if (work_->groups.empty()) return;
  work_->mlps.forward({.x = source(batch.rows),
                       .groups = work_->groups,
                       .y = batch.outputs,
                       .keep = batch.keep,
                       .dropout = batch.dropout});
}

void CpuExperts::backward(const ExpertBackward& batch, AdapterGradients& gradients) {
  if (batch.rows.empty()) return;
  make_groups(batch.slot_begin);
  work_->mlps.backward({.x = source(batch.rows),
                        .groups = work_->groups,
                        .dy = source(batch.gradient_rows),
                        .row_weights = batch.row_weights.data(),
                        .stash = batch.stash,
                        .dx = batch.dx,
                        .weight_gradients = batch.weight_gradients.data(),
                        .samples = batch.samples,
                        .dropout = batch.dropout},
                       gradients);
}

}  // namespace moesaic
