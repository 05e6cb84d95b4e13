#include "launch/chat/chat_screen.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "launch/job/runtime.h"

namespace moesaic {
namespace {

constexpr std::string_view kGreen = "\033[1;32m";
constexpr std::string_view kRed = "\033[1;31m";
constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kPlain = "\033[0m";

void print_error_output(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void ChatScreen::answer(std::string_view text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_output();
  in_line_ = !text.ends_with('\n');
}

void ChatScreen::end_answer() {
  if (in_line_) answer("\n");
}

void ChatScreen::note(std::string_view text) const {
  print_error_output(painted(kDim, text) + "\n");
}

void ChatScreen::error(std::string_view text) const {
  print_error_output(painted(kRed, "error: ") + std::string(text) + "\n");
}

std::string ChatScreen::prompt() const {
  return painted(kGreen, ">") + " ";
}

std::string ChatScreen::painted(std::string_view code, std::string_view text) const {
  return colours_ ? fmt::format("{}{}{}", code, text, kPlain) : std::string(text);
}

bool terminal_has_colours() {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 &&
         ::isatty(STDERR_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace moesaic
