#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace moesaic {

/// Shows how far a long piece of work has come, on the standard error output: a bar on a terminal,
/// else a line every ten seconds. For one thread of one rank.
class Progress {
 public:
  /// `label` such as "loading". A silent one shows nothing.
  Progress(std::string label, bool silent);
  /// Ends the bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done_bytes, std::int64_t total_bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::int64_t done_bytes, std::int64_t total_bytes);

  std::string label_;
  bool silent_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
};

/// "loading [=====>    ]  52 % 1.20 GiB of 2.30 GiB, 3 s left" (rank 0's share).
[[nodiscard]] std::string progress_line(const std::string& label, std::int64_t done_bytes,
                                        std::int64_t total_bytes, double seconds);

}  // namespace moesaic
