#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/signal_watch.h"

namespace moesaic {

/// Leaves work that cannot be left in a better way because the process was asked to stop. Not an
/// Error: nothing is wrong.
class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(const std::string& message, bool is_terminated = false)
      : std::runtime_error(message), is_terminated_(is_terminated) {}
  /// Whether SIGTERM has asked: a launcher sends it also to ranks that are left when another has
  /// failed.
  [[nodiscard]] bool is_terminated() const noexcept { return is_terminated_; }

 private:
  bool is_terminated_;
};

struct InterruptionOptions {
  std::vector<int> signals = {SIGINT, SIGTERM, SIGUSR1};
  std::optional<std::chrono::milliseconds> max_time;  // from now on
  std::string stop_file;                              // empty: none
};

/// Whether this process has been asked to stop before it is done: by a signal, because its time is
/// over, or by a file that somebody made. Long work asks between its steps; work of several ranks
/// lets the answers of all travel with what they exchange anyway, so that all end at the same step.
/// A second signal ends the process (SignalWatch).
class Interruption {
 public:
  explicit Interruption(InterruptionOptions options);

  /// Costs next to nothing; the file is looked for once a second. Stays true. For one thread.
  [[nodiscard]] bool wanted();
  /// What has asked: "SIGTERM", "the time is over", "FILE.stop is there"; empty if nothing has.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Whether SIGTERM has come, first or later, as a launcher sends it to all ranks.
  [[nodiscard]] bool is_terminated() const noexcept { return watch_.has_heard(SIGTERM); }
  /// Throws Interrupted if wanted(): "interrupted (SIGTERM) " and `doing`, such as "while loading";
  /// the file that has asked is gone then.
  void leave_if_wanted(std::string_view doing);
  /// Takes away the file that has asked, so that it does not stop the next run too.
  void remove_stop_file() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool stop_file_is_there();

  InterruptionOptions options_;
  SignalWatch watch_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_look_ = start_;
  std::string reason_;
  bool asked_by_file_ = false;
};

}  // namespace moesaic
