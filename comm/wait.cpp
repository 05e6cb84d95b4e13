#include "comm/wait.h"

#include <unistd.h>

namespace moesaic {

WaitPolicy wait_policy(std::chrono::milliseconds timeout, int num_ranks, IdleTime& idle) {
  constexpr int kSpinLooks = 200;  // some microseconds, about ten times what a hand-over takes
  const bool core_for_each = num_ranks <= sysconf(_SC_NPROCESSORS_ONLN);
  return {timeout, core_for_each ? kSpinLooks : 0, &idle, nullptr};
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
