#include "src/generate/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {

Schedule::Schedule(int num_ranks, std::int64_t parallel)
    : parallel_(parallel), loads_(static_cast<std::size_t>(num_ranks)) {
  require(parallel >= 1, ErrorKind::usage, "--parallel must be at least 1, not {}", parallel);
}

void Schedule::add(RequestId request, std::int64_t prompt_tokens) {
  waiting_.push_back({request, prompt_tokens});
}

std::vector<Schedule::Assignment> Schedule::assign() {
  std::vector<Assignment> assignments;
  while (!waiting_.empty()) {
    const auto free = std::ranges::min_element(loads_);
    if (free->requests >= parallel_) break;
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    const auto rank = static_cast<int>(free - loads_.begin());
    ++free->requests;
    free->prompt_tokens += next.prompt_tokens;
    assigned_[next.request] = {rank, next.prompt_tokens};
    assignments.push_back({next.request, rank});
  }
  return assignments;
}

void Schedule::remove(RequestId request) {
  const auto found = assigned_.find(request);
  if (found == assigned_.end()) {
    std::erase_if(waiting_, [&](const Waiting& entry) { return entry.request == request; });
    return;
  }
  Load& load = loads_[static_cast<std::size_t>(found->second.rank)];
  --load.requests;
  load.prompt_tokens -= found->second.prompt_tokens;
  assigned_.erase(found);
}

std::int64_t Schedule::most_on_a_rank() const {
  return std::ranges::max_element(loads_)->requests;
}

}  // namespace moesaic
