#pragma once

#include <chrono>
#include <optional>

#include "launch/chat/line_reader.h"
#include "launch/input/prompts.h"

namespace moesaic {

/// Prompts of the standard input, each as soon as its line is there.
class PromptStream {
 public:
  PromptStream();

  using Clock = std::chrono::steady_clock;

  /// The next prompt whose whole line has come, which has an error if it is not what it should be;
  /// none if there is none, or none was found until then. Throws Error{file} if the input cannot be
  /// read.
  [[nodiscard]] std::optional<Prompt> next(Clock::time_point until);
  /// Whether next() has left lines that are there, as time was up.
  [[nodiscard]] bool has_left_off() const noexcept { return has_left_off_; }
  /// Whether nothing more will come after what next() gives.
  [[nodiscard]] bool has_ended() const noexcept { return lines_.has_ended(); }
  /// Returns when something has come or has ended, or after so long, or at a signal.
  void wait(std::chrono::milliseconds most) const;

 private:
  LineReader lines_;
  PromptLines prompts_;
  bool has_left_off_ = false;
};

}  // namespace moesaic
