#include "src/moe/slot_queue.h"

namespace moesaic {

void SlotQueue::start(const ExecutePlan& plan, std::int64_t outputs_at_once) {
  plan_ = &plan;
  outputs_at_once_ = outputs_at_once;
  done_.assign(plan.slot_begin.size() - 1, false);
  seen_.assign(plan.slot_begin.begin(), plan.slot_begin.end() - 1);
  next_ = 0;
}

bool SlotQueue::is_ready(std::size_t slot, const IsHere& is_here) {
  std::int64_t& output = seen_[slot];
  while (output < plan_->slot_begin[slot + 1] &&
         is_here(plan_->output_sources[static_cast<std::size_t>(output)])) {
    ++output;
  }
  return output == plan_->slot_begin[slot + 1];
}

std::optional<SlotRange> SlotQueue::next(const IsHere& is_here) {
  SlotRange range{next_, 0};
  for (std::size_t slot = next_; slot < done_.size(); ++slot) {
    if (done_[slot] || !is_ready(slot, is_here)) {
      if (range.count > 0) break;
      range.first = slot + 1;
      continue;
    }
    done_[slot] = true;
    ++range.count;
    if (plan_->slot_begin[slot + 1] - plan_->slot_begin[range.first] >= outputs_at_once_) break;
  }
  while (next_ < done_.size() && done_[next_]) ++next_;
  if (range.count == 0) return std::nullopt;
  return range;
}

}  // namespace moesaic
