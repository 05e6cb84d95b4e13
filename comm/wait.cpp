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

void give_up_waiting(const WaitPolicy& policy, Awaited waiting,
                     std::chrono::steady_clock::time_point begin) {
  const int failed = policy.failed_rank == nullptr ? -1 : policy.failed_rank->load();
  require(failed < 0, ErrorKind::peer, "{}: rank {} has failed", waiting.text, failed);
  if (RollCall* ranks = policy.idle->roll_call()) {
    for (int& rank : waiting.ranks) {
      if (policy.job_ranks != nullptr) rank = (*policy.job_ranks)[static_cast<std::size_t>(rank)];
    }
    ranks->call(policy.idle->place(), waiting, begin);
  }
  fail(ErrorKind::peer, "{}: gave up after {:.1f} s", waiting.text,
       std::chrono::duration<double>(policy.timeout).count());
}

}  // namespace moesaic
