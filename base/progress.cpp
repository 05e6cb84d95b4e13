#include "base/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace moesaic {
namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(10);
constexpr std::int64_t kBarWidth = 30;

}  // namespace

Progress::Progress(std::string label, bool silent, AmountText amount_text)
    : label_(std::move(label)),
      silent_(silent),
      amount_text_(amount_text),
      terminal_(isatty(STDERR_FILENO) == 1) {
  next_ = start_ + (terminal_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval));
}

Progress::~Progress() {
  if (drawn_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::int64_t done, std::int64_t total) {
  const auto now = Clock::now();
  if (silent_ || now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval));
  draw(done, total);
}

void Progress::draw(std::int64_t done, std::int64_t total) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const std::string line = progress_line(label_, {done, total, seconds}, amount_text_);
  const std::string text = terminal_ ? "\r\033[K" + line : line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);  // a full disk is no reason to end the work
  std::fflush(stderr);
  drawn_ = true;
}

std::string progress_line(const std::string& label, const ProgressState& state,
                          Progress::AmountText amount_text) {
  const double share =
      state.total > 0
          ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
          : 1.0;
  const auto filled = static_cast<std::int64_t>(share * static_cast<double>(kBarWidth));
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < kBarWidth) bar += '>';
  bar.resize(static_cast<std::size_t>(kBarWidth), ' ');
  const std::string left =
      share > 0 ? fmt::format(", {:.0f} s left", state.seconds * (1 - share) / share) : "";
  return fmt::format("{} [{}] {:3.0f} % {} of {}{}", label, bar, share * 100,
                     amount_text(state.done), amount_text(state.total), left);
}

}  // namespace moesaic
