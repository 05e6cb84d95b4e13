#include "comm/wait.h"

#include <sched.h>

#include <bit>

namespace moesaic {

Processors usable_processors() {
  Processors processors{};
  static_assert(sizeof(Processors) % sizeof(unsigned long) == 0);
  if (sched_getaffinity(0, sizeof processors, reinterpret_cast<cpu_set_t*>(processors.data())) !=
      0) {
    processors.fill(~std::uint64_t{0});  // more than fit: enough
  }
  return processors;
}

WaitPolicy wait_policy(std::chrono::milliseconds timeout, int num_ranks,
                       const Processors& processors, IdleTime& idle) {
  constexpr int kSpinLooks = 200;  // some microseconds, about ten times what a hand-over takes
  int usable = 0;
  for (const std::uint64_t word : processors) usable += std::popcount(word);
  return {timeout, num_ranks <= usable ? kSpinLooks : 0, &idle, nullptr};
}

void give_up_waiting(const WaitPolicy& policy, const std::string& waiting,
                     std::chrono::steady_clock::time_point begin) {
  const int failed = policy.failed_rank == nullptr ? -1 : policy.failed_rank->load();
  require(failed < 0, ErrorKind::peer, "{}: rank {} has failed", waiting, failed);
  if (RollCall* ranks = policy.idle->roll_call()) ranks->call(policy.idle->place(), waiting, begin);
  fail(ErrorKind::peer, "{}: gave up after {:.1f} s", waiting,
       std::chrono::duration<double>(policy.timeout).count());
}

std::string RankList::text() const {
  std::string text;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (i > 0) text += i + 1 == ranks_.size() ? " and " : ", ";
    text += std::to_string(ranks_[i]);
  }
  return text;
}

}  // namespace moesaic
