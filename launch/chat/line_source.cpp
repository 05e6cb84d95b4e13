#include "launch/chat/line_source.h"

#include <fmt/core.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "base/descriptor.h"

namespace moesaic {

Readiness wait_for_input(int descriptor, const Waiting& waiting) {
  while (true) {
    if (waiting.is_interrupted && waiting.is_interrupted()) return Readiness::interrupted;
    if (waiting.is_over && waiting.is_over()) return Readiness::over;
    if (is_readable(descriptor, waiting.idle_every)) return Readiness::ready;
    if (waiting.on_idle) waiting.on_idle();
  }
}

PlainLines::PlainLines(int descriptor, Waiting waiting, bool show_prompts)
    : lines_(descriptor), waiting_(std::move(waiting)), show_prompts_(show_prompts) {}

Line PlainLines::read(const std::string& prompt) {
  if (show_prompts_) fmt::print(stderr, "{}", prompt);
  while (true) {
    if (std::optional<std::string> line = lines_.take()) {
      return {.kind = Line::Kind::text, .text = std::move(*line)};
    }
    if (lines_.has_ended()) {
      if (show_prompts_) fmt::print(stderr, "\n");
      return {};
    }
    const Readiness state = wait_for_input(lines_.descriptor(), waiting_);
    if (state == Readiness::interrupted) return {.kind = Line::Kind::interrupted};
    if (state == Readiness::over) return {};
    lines_.read();
  }
}

}  // namespace moesaic
