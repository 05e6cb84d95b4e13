#include "src/generate/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {

Schedule::Schedule(int num_ranks, std::int64_t parallel)
    : parallel_(parallel), loads_(static_cast<std::size_t>(num_ranks)) {
  require(parallel >= 1, ErrorKind::usage, "--parallel must be at least 1, not {}", parallel);
}

void Schedule::add(RequestId id, const Request& request) {
  waiting_.push_back({id, std::ssize(request.tokens), request.max_new_tokens, request.group});
}

int Schedule::choose_rank(const Waiting& next) const {
  const auto least = std::ranges::min_element(loads_);
  const auto group = next.group ? groups_.find(*next.group) : groups_.end();
  if (group != groups_.end()) {
    const std::int64_t requests = loads_[static_cast<std::size_t>(group->second.rank)].requests;
    const std::int64_t more = requests - least->requests;
    const bool pays = more <= next.prompt_tokens / std::max<std::int64_t>(next.max_new_tokens, 1);
    if (requests < parallel_ && pays) return group->second.rank;
  }
  return static_cast<int>(least - loads_.begin());
}

void Schedule::enter(std::int64_t group, int rank) {
  const auto [found, is_new] = groups_.try_emplace(group, Group{.rank = rank, .requests = 0});
  Group& entry = found->second;
  if (!is_new) --loads_[static_cast<std::size_t>(entry.rank)].groups;
  ++loads_[static_cast<std::size_t>(rank)].groups;
  if (!is_new && entry.requests == 0) std::erase(remembered_, group);
  entry = {rank, entry.requests + 1};
}

void Schedule::leave(std::int64_t group) {
  if (--groups_[group].requests > 0) return;
  remembered_.push_back(group);
  if (std::ssize(remembered_) <= parallel_ * std::ssize(loads_)) return;
  const auto oldest = groups_.find(remembered_.front());
  --loads_[static_cast<std::size_t>(oldest->second.rank)].groups;
  groups_.erase(oldest);
  remembered_.pop_front();
}

std::vector<Schedule::Assignment> Schedule::assign() {
  std::vector<Assignment> assignments;
  while (!waiting_.empty()) {
    const Waiting next = waiting_.front();
    const int rank = choose_rank(next);
    Load& load = loads_[static_cast<std::size_t>(rank)];
    if (load.requests >= parallel_) break;
    waiting_.pop_front();
    ++load.requests;
    load.prompt_tokens += next.prompt_tokens;
    assigned_[next.request] = {rank, next.prompt_tokens, next.group};
    if (next.group) enter(*next.group, rank);
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
  if (const auto group = found->second.group) leave(*group);
  assigned_.erase(found);
}

std::int64_t Schedule::most_on_a_rank() const {
  return std::ranges::max_element(loads_)->requests;
}

}  // namespace moesaic
