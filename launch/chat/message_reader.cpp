#include "launch/chat/message_reader.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace moesaic {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::string_view kBlank = " \t\r\n";

}  // namespace

MessageReader::MessageReader(LineSource& lines, std::string prompt)
    : lines_(lines), prompt_(std::move(prompt)), further_prompt_(". ") {}

Message MessageReader::read() {
  while (true) {
    Message message = read_one();
    if (message.kind != Line::Kind::text) return message;
    if (message.text.find_first_not_of(kBlank) == std::string::npos) continue;
    const std::string_view quotes = message.is_quoted ? kQuotes : "";  // as it can be given again
    lines_.remember(fmt::format("{}{}{}", quotes, message.text, quotes));
    return message;
  }
}

Message MessageReader::read_one() {
  Line line = lines_.read(prompt_);
  if (line.kind == Line::Kind::text && line.text.starts_with(kQuotes)) {
    return read_quoted(line.text.substr(kQuotes.size()));
  }
  std::string text;
  while (line.kind == Line::Kind::text && line.text.ends_with('\\')) {
    text += line.text.substr(0, line.text.size() - 1) + "\n";
    line = lines_.read(further_prompt_);
  }
  if (line.kind == Line::Kind::interrupted) return {.kind = line.kind};
  if (line.kind == Line::Kind::end && text.empty()) return {};
  return {.kind = Line::Kind::text, .text = text + line.text};
}

/// The end of the input ends a text, too.
Message MessageReader::read_quoted(const std::string& first) {
  Message message{.kind = Line::Kind::text, .is_quoted = true};
  Line line{Line::Kind::text, first};
  while (line.kind == Line::Kind::text) {
    message.text += line.text;
    const std::string_view text = message.text;
    const std::size_t last = text.find_last_not_of(kBlank);
    const std::string_view body = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
    if (body.ends_with(kQuotes)) {
      message.text.resize(body.size() - kQuotes.size());
      break;
    }
    message.text += '\n';
    line = lines_.read(further_prompt_);
  }
  if (line.kind == Line::Kind::interrupted) return {.kind = line.kind};
  while (message.text.ends_with('\n')) message.text.pop_back();
  if (message.text.starts_with('\n')) message.text.erase(0, 1);
  return message;
}

}  // namespace moesaic
