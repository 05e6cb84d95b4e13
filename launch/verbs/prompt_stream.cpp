#include "launch/verbs/prompt_stream.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace moesaic {

PromptStream::PromptStream() : lines_(STDIN_FILENO), prompts_(input_name("-")) {}

std::optional<Prompt> PromptStream::next(Clock::time_point until) {
  while (true) {
    while (std::optional<std::string> line = lines_.take()) {
      has_left_off_ = false;
      if (std::optional<Prompt> prompt = prompts_.parse(*line)) return prompt;
      has_left_off_ = Clock::now() > until;
      if (has_left_off_) return std::nullopt;
    }
    has_left_off_ = false;
    if (lines_.has_ended() || !has_more(std::chrono::milliseconds(0))) return std::nullopt;
    lines_.read();
  }
}

void PromptStream::wait(std::chrono::milliseconds most) const {
  (void)has_more(most);
}

bool PromptStream::has_more(std::chrono::milliseconds wait) const {
  pollfd input{.fd = lines_.descriptor(), .events = POLLIN, .revents = 0};
  const int count = ::poll(&input, 1, static_cast<int>(wait.count()));
  require(count >= 0 || errno == EINTR, ErrorKind::resource, "cannot wait for {}: {}",
          input_name("-"), std::strerror(errno));
  return count > 0;
}

}  // namespace moesaic
