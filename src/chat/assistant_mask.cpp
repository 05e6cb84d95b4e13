#include "src/chat/assistant_mask.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace moesaic {
namespace {

bool is_assistant(const jinja::Value& message) {
  if (message.dict() == nullptr) return false;
  const jinja::Value* role = message.dict()->find("role");
  return role != nullptr && role->text() != nullptr && *role->text() == "assistant";
}

/// The text of the first `count` messages; nullopt if there are none or the template refuses them.
std::optional<std::string> text_of_part(const ChatTemplate& chat_template, const Chat& chat,
                                        std::size_t count, bool add_generation_prompt) {
  if (count == 0) return std::nullopt;  // transformers takes no empty conversation either
  const auto& messages = chat.messages.sequence()->items;
  Chat part = chat;
  part.messages = jinja::make_sequence(
      {messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)});
  part.add_generation_prompt = add_generation_prompt;
  try {
    return chat_template.render(part).text;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    return std::nullopt;
  }
}

/// The messages [begin, end) of the last turn of an assistant; empty if none speaks.
struct Turn {
  std::size_t begin = 0;
  std::size_t end = 0;
};

Turn last_turn(const Chat& chat) {
  const auto& messages = chat.messages.sequence()->items;
  Turn turn{messages.size(), messages.size()};
  while (turn.end > 0 && !is_assistant(messages[turn.end - 1])) --turn.end;
  turn.begin = turn.end;
  while (turn.begin > 0 && is_assistant(messages[turn.begin - 1])) --turn.begin;
  return turn;
}

/// Of generation blocks.
std::vector<Span> generated_spans(const jinja::Rendered& whole) {
  std::vector<Span> spans;
  for (const jinja::Generated& made : whole.generated) {
    spans.push_back(
        {std::min(made.begin, whole.text.size()), std::min(made.end, whole.text.size())});
  }
  return spans;
}

/// Without such blocks, of an assistant's messages from `first` on, one each.
std::optional<std::vector<Span>> message_spans(const ChatTemplate& chat_template, const Chat& chat,
                                               const jinja::Rendered& whole, std::size_t first) {
  std::vector<Span> spans;
  const auto& messages = chat.messages.sequence()->items;
  for (std::size_t i = first; i < messages.size(); ++i) {
    if (!is_assistant(messages[i])) continue;
    const auto before = text_of_part(chat_template, chat, i, true);
    const auto behind = text_of_part(chat_template, chat, i + 1, false);
    if (!before || !behind || before->size() > behind->size() || !whole.text.starts_with(*before) ||
        !whole.text.starts_with(*behind)) {
      return std::nullopt;
    }
    spans.push_back({before->size(), behind->size()});
  }
  return spans;
}

}  // namespace

std::optional<std::vector<Span>> assistant_spans(const ChatTemplate& chat_template,
                                                 const Chat& chat, const jinja::Rendered& whole) {
  if (chat_template.has_generation(chat)) return generated_spans(whole);
  return message_spans(chat_template, chat, whole, 0);
}

std::optional<std::vector<Span>> last_turn_spans(const ChatTemplate& chat_template,
                                                 const Chat& chat, const jinja::Rendered& whole) {
  const Turn turn = last_turn(chat);
  if (!chat_template.has_generation(chat)) {
    return message_spans(chat_template, chat, whole, turn.begin);
  }
  const std::vector<Span> spans = generated_spans(whole);
  const auto& messages = chat.messages.sequence()->items;
  const auto before_turn = messages.begin() + static_cast<std::ptrdiff_t>(turn.begin);
  if (std::none_of(messages.begin(), before_turn, is_assistant)) return spans;
  for (const bool add_generation_prompt : {false, true}) {
    const auto before = text_of_part(chat_template, chat, turn.begin, add_generation_prompt);
    if (!before || !whole.text.starts_with(*before)) continue;
    const auto is_of_turn = [&](const Span& span) { return span.begin >= before->size(); };
    return std::vector<Span>(std::find_if(spans.begin(), spans.end(), is_of_turn), spans.end());
  }
  return std::nullopt;
}

bool assistant_speaks_first(const Chat& chat) {
  const auto& messages = chat.messages.sequence()->items;
  return !messages.empty() && is_assistant(messages.front());
}

std::vector<bool> mask_of(const EncodedText& tokens, const std::vector<Span>& spans) {
  std::vector<bool> mask;
  mask.reserve(tokens.spans.size());
  for (const Span& token : tokens.spans) {
    mask.push_back(std::any_of(spans.begin(), spans.end(), [&](const Span& span) {
      return std::max(token.begin, span.begin) < std::min(token.end, span.end);
    }));
  }
  return mask;
}

}  // namespace moesaic
