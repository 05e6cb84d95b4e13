#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace moesaic {

enum class LogLevel { error, warning, info, debug };

/// Who speaks, and how much of it is heard. Lines go to stderr with a "[rank r/R host]" prefix when
/// there are several ranks; what cannot be written is left out. Passed to whom it concerns, in
/// launch/ alone; there is no global logger.
class Log {
 public:
  Log() = default;
  Log(LogLevel level, int rank, int num_ranks);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] bool enabled(LogLevel level) const noexcept { return level <= level_; }

  /// A line from this rank, whichever it is.
  template <typename... Args>
  void write(LogLevel level, fmt::format_string<Args...> text, Args&&... args) const {
    if (enabled(level)) write_line(level, fmt::format(text, std::forward<Args>(args)...));
  }
  /// A line that rank 0 alone writes, without a prefix.
  template <typename... Args>
  void once(LogLevel level, fmt::format_string<Args...> text, Args&&... args) const {
    if (rank_ == 0 && enabled(level))
      once_line(level, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  void write_line(LogLevel level, std::string_view text) const;
  void once_line(LogLevel level, std::string_view text) const;

  LogLevel level_ = LogLevel::info;
  int rank_ = 0;
  std::string prefix_;  // "[rank 1/4 host] ", or nothing for a single rank
};

/// This machine's name.
[[nodiscard]] std::string host_name();

}  // namespace moesaic
