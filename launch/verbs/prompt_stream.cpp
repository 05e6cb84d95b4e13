#include "launch/verbs/prompt_stream.h"

#include <unistd.h>

#include <string>

#include "base/descriptor.h"

namespace moesaic {

PromptStream::PromptStream() : lines_(STDIN_FILENO), prompts_(input_name("-")) {}

std::optional<Prompt> PromptStream::next(Clock::time_point until) {
  while (true) {
    while (std::optional<std::string> line = lines_.take()) {
      has_left_off_ = false;
      if (!is_blank(*line)) return prompts_.parse({.text = *line, .number = lines_.taken()});
      has_left_off_ = Clock::now() > until;
      if (has_left_off_) return std::nullopt;
    }
    has_left_off_ = false;
    if (lines_.has_ended() || !is_readable(lines_.descriptor(), std::chrono::milliseconds(0)))
      return std::nullopt;
    lines_.read();
  }
}

void PromptStream::wait(std::chrono::milliseconds most) const {
  (void)is_readable(lines_.descriptor(), most);
}

}  // namespace moesaic
