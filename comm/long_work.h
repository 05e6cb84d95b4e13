#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace moesaic {

/// Work that may take one rank much longer than another, such as reading from disks, and after
/// which all of them meet. Meanwhile the ranks tell each other how far they have come, so that the
/// deadline of those that are done counts from the last progress of those that are not: a slow rank
/// is waited for, one that has stopped is not.
///
/// All ranks make one, and finish() it or give_up(); a rank that does neither has to end the job.
/// They exchange rows in rounds, and make no other collective call of `ranks` meanwhile.
class LongWork {
 public:
  /// Hears now and then "waiting for rank 3 (41 %)" while finish() waits.
  using Notice = std::function<void(const std::string& waiting)>;

  /// `what` the ranks do, such as "loading", for messages. `ranks` must outlive this.
  LongWork(Communicator& ranks, std::string what, Notice notice = {});

  /// Asked now and then while finish() waits: whether it shall give up.
  void give_up_if(std::function<bool()> wanted) { wants_to_give_up_ = std::move(wanted); }
  /// This rank has done so much of its own work. By the thread that makes its collective calls;
  /// cheap, to be called often. Never blocks. Throws Interrupted when another rank has given up.
  void advance(std::int64_t done, std::int64_t total);
  /// Returns when all ranks have called it or given up. Throws Error{peer} that names the rank that
  /// has made no progress for as long as the communicator waits.
  void finish();
  /// The same after an error, which makes what others are at useless: they hear of it when they
  /// advance().
  void give_up();

 private:
  using Clock = std::chrono::steady_clock;
  void meet(std::int64_t permille);
  void start_round(std::int64_t permille);
  void wait_for_round();
  void take_round();
  [[nodiscard]] std::string behind() const;

  Communicator& ranks_;
  std::string what_;
  Notice notice_;
  std::function<bool()> wants_to_give_up_;
  std::int64_t own_ = 0;              // this rank's permille: what it sends to each
  std::vector<std::int32_t> rows_;    // row 0 for each other rank
  std::vector<std::int64_t> counts_;  // [size] a row to each, and from each
  std::vector<std::int64_t> known_;   // [size] permille of the last round that is over
  Clock::time_point next_round_;
  PendingRows round_;
};

}  // namespace moesaic
