#include "launch/chat/line_source.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

/// A message larger than any context.
constexpr std::size_t kMostLineBytes = std::size_t{256} << 20;

}  // namespace

Readiness wait_for_input(int descriptor, const Waiting& waiting) {
  while (true) {
    if (waiting.is_interrupted && waiting.is_interrupted()) return Readiness::interrupted;
    if (waiting.is_over && waiting.is_over()) return Readiness::over;
    pollfd input{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int count = ::poll(&input, 1, static_cast<int>(waiting.idle_every.count()));
    require(count >= 0 || errno == EINTR, ErrorKind::resource, "cannot wait for input: {}",
            std::strerror(errno));
    if (count > 0) return Readiness::ready;
    if (count == 0 && waiting.on_idle) waiting.on_idle();
  }
}

PlainLines::PlainLines(int descriptor, Waiting waiting, bool show_prompts)
    : descriptor_(descriptor), waiting_(std::move(waiting)), show_prompts_(show_prompts) {}

Line PlainLines::take(std::size_t end) {
  Line line{Line::Kind::text, buffer_.substr(0, end)};
  buffer_.erase(0, std::min(end + 1, buffer_.size()));
  searched_ = 0;
  if (line.text.ends_with('\r')) line.text.pop_back();
  return line;
}

Line PlainLines::read(const std::string& prompt) {
  if (show_prompts_) fmt::print(stderr, "{}", prompt);
  while (true) {
    const std::size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos) return take(end);
    searched_ = buffer_.size();
    if (has_ended_ && !buffer_.empty()) return take(buffer_.size());
    if (has_ended_) {
      if (show_prompts_) fmt::print(stderr, "\n");
      return {};
    }
    const Readiness state = wait_for_input(descriptor_, waiting_);
    if (state == Readiness::interrupted) return {.kind = Line::Kind::interrupted};
    if (state == Readiness::over) return {};
    std::array<char, 65536> bytes{};
    const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    require(count >= 0, ErrorKind::file, "cannot read the standard input: {}",
            std::strerror(errno));
    has_ended_ = count == 0;
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
    require(buffer_.size() <= kMostLineBytes, ErrorKind::file,
            "a line of the standard input has more than {} bytes", kMostLineBytes);
  }
}

}  // namespace moesaic
