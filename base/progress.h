#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/memory.h"

namespace moesaic {

/// Shows how far a long piece of work has come, on the standard error output: a bar on a terminal,
/// else a line every ten seconds. What cannot be written is left out. For one thread
/// of one rank, of launch/ alone.
class Progress {
 public:
  /// How an amount is written.
  using AmountText = std::string (*)(std::int64_t);

  /// `label` such as "loading". A silent one shows nothing. Amounts are bytes unless told
  /// otherwise.
  Progress(std::string label, bool silent, AmountText amount_text = format_bytes);
  /// Ends the bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done, std::int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::int64_t done, std::int64_t total);

  std::string label_;
  bool silent_;
  AmountText amount_text_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
};

/// What a progress line tells.
struct ProgressState {
  std::int64_t done = 0;
  std::int64_t total = 0;
  double seconds = 0;  ///< since the start
};

/// "loading [=====>    ]  52 % 1.20 GiB of 2.30 GiB, 3 s left" (rank 0's share).
[[nodiscard]] std::string progress_line(const std::string& label, const ProgressState& state,
                                        Progress::AmountText amount_text = format_bytes);

}  // namespace moesaic
