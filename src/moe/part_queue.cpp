#include "src/moe/part_queue.h"

namespace moesaic {

void PartQueue::start(const ExecutePlan& plan) {
  plan_ = &plan;
  missing_.clear();
  for (std::size_t part = 0; part + 1 < plan.part_begin.size(); ++part) {
    missing_.push_back(plan.part_begin[part + 1] - plan.part_begin[part]);
  }
}

std::span<const std::int32_t> PartQueue::add(std::int64_t first, std::int64_t count) {
  whole_.clear();
  for (std::int64_t output = first; output < first + count; ++output) {
    const std::int32_t part = plan_->output_parts[static_cast<std::size_t>(output)];
    if (--missing_[static_cast<std::size_t>(part)] == 0) whole_.push_back(part);
  }
  return whole_;
}

std::span<const std::int32_t> PartQueue::outputs_of(std::int32_t part) const {
  const auto begin = plan_->part_begin[static_cast<std::size_t>(part)];
  const auto end = plan_->part_begin[static_cast<std::size_t>(part) + 1];
  return std::span(plan_->part_outputs)
      .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

}  // namespace moesaic
