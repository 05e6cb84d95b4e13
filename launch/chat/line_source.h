#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "launch/chat/line_reader.h"

namespace moesaic {

/// What goes on while somebody thinks of what to write.
struct Waiting {
  std::function<void()> on_idle{};  ///< called now and then, at most `idle_every` apart
  std::chrono::milliseconds idle_every{500};
  std::function<bool()> is_interrupted{};  ///< a signal asks for attention
  std::function<bool()> is_over{};         ///< nothing will be read any more
};

enum class Readiness { ready, interrupted, over };

/// Waits until `descriptor` can be read, or has ended. Signals are noticed at once, all else by
/// `idle_every`.
[[nodiscard]] Readiness wait_for_input(int descriptor, const Waiting& waiting);

/// A line that was read, without its end.
struct Line {
  enum class Kind { text, interrupted, end };

  Kind kind = Kind::end;
  std::string text{};
};

/// Where a conversation's lines come from.
class LineSource {
 public:
  virtual ~LineSource() = default;
  /// The next line. `prompt` asks for it, if somebody looks.
  [[nodiscard]] virtual Line read(const std::string& prompt) = 0;
  /// A message that was read whole: a person may want to see it again.
  virtual void remember(const std::string& message) = 0;
};

/// Lines of a file or pipe, as they stand.
class PlainLines : public LineSource {
 public:
  /// `show_prompts`: on the standard error output, for a person whose launcher passes lines on.
  PlainLines(int descriptor, Waiting waiting, bool show_prompts);

  [[nodiscard]] Line read(const std::string& prompt) override;
  void remember(const std::string&) override {}

 private:
  LineReader lines_;
  Waiting waiting_;
  bool show_prompts_;
};

}  // namespace moesaic
