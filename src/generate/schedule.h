#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/generate/request.h"

namespace moesaic {

/// Which rank works on which request. Every rank keeps a copy and tells it the same things in the
/// same order, so that all copies agree.
class Schedule {
 public:
  struct Assignment {
    RequestId request = 0;
    int rank = 0;
  };

  /// At most `parallel` requests at a time on each of `num_ranks` ranks.
  Schedule(int num_ranks, std::int64_t parallel);

  /// A request waits from now on.
  void add(RequestId id, const Request& request);
  /// Requests that have waited go, in the order of their arrival, each to the rank with the fewest
  /// requests, then the fewest tokens of prompts, then the fewest groups, then the lowest number.
  /// One of a group goes to
  /// the rank that took the last of it, if that has room and the tokens that it generates beyond
  /// those of the rank with the fewest requests are no more than those of the prompt that the other
  /// would compute again. Of groups that have ended, as many are remembered as ranks keep ended
  /// sequences: the last ones.
  [[nodiscard]] std::vector<Assignment> assign();
  /// The request has ended, or is not wanted any more. Nothing happens if it is not known.
  void remove(RequestId request);

  /// Whether a rank has work, or will have it.
  [[nodiscard]] bool under_way() const noexcept { return !assigned_.empty() || !waiting_.empty(); }
  /// Requests of the rank that has most.
  [[nodiscard]] std::int64_t most_on_a_rank() const;

 private:
  struct Load {
    std::int64_t requests = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t groups = 0;  // whose last request went there
    auto operator<=>(const Load&) const = default;
  };
  struct Waiting {
    RequestId request = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t max_new_tokens = 0;
    std::optional<std::int64_t> group;
  };
  struct Assigned {
    int rank = 0;
    std::int64_t prompt_tokens = 0;
    std::optional<std::int64_t> group;
  };
  struct Group {
    int rank = 0;               // that took the last one
    std::int64_t requests = 0;  // under way, on any rank
  };
  [[nodiscard]] int choose_rank(const Waiting& next) const;
  /// One more or one less of a group is under way.
  void enter(std::int64_t group, int rank);
  void leave(std::int64_t group);

  std::int64_t parallel_;
  std::vector<Load> loads_;  // [ranks]
  std::deque<Waiting> waiting_;
  std::unordered_map<RequestId, Assigned> assigned_;
  std::unordered_map<std::int64_t, Group> groups_;  // that are under way, or remembered
  std::deque<std::int64_t> remembered_;  // without requests, the one that ended last last
};

}  // namespace moesaic
