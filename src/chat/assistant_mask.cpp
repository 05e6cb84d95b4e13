#include "src/chat/assistant_mask.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace moesaic {
namespace {

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

/// Of all generation blocks.
std::vector<Span> generated_spans(const jinja::Rendered& whole) {
  std::vector<Span> spans;
  for (const jinja::Generated& made : whole.generated) {
    spans.push_back(
        {std::min(made.begin, whole.text.size()), std::min(made.end, whole.text.size())});
  }
  return spans;
}

/// Of the generation blocks of the messages from `first` on: those that begin behind what the
/// template writes of the messages before.
std::optional<std::vector<Span>> generated_spans(const ChatTemplate& chat_template,
                                                 const Chat& chat, const jinja::Rendered& whole,
                                                 std::size_t first) {
  const std::vector<Span> spans = generated_spans(whole);
  const auto& messages = chat.messages.sequence()->items;
  const auto before_first = messages.begin() + static_cast<std::ptrdiff_t>(first);
  if (std::none_of(messages.begin(), before_first, is_assistant)) return spans;
  for (const bool add_generation_prompt : {false, true}) {
    const auto before = text_of_part(chat_template, chat, first, add_generation_prompt);
    if (!before || !whole.text.starts_with(*before)) continue;
    const auto is_behind = [&](const Span& span) { return span.begin >= before->size(); };
    return std::vector<Span>(std::find_if(spans.begin(), spans.end(), is_behind), spans.end());
  }
  return std::nullopt;
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
                                                 const Chat& chat, const jinja::Rendered& whole,
                                                 std::size_t first) {
  if (chat_template.has_generation(chat)) return generated_spans(chat_template, chat, whole, first);
  return message_spans(chat_template, chat, whole, first);
}

std::size_t last_turn(const Chat& chat) {
  const auto& messages = chat.messages.sequence()->items;
  std::size_t begin = messages.size();
  while (begin > 0 && !is_assistant(messages[begin - 1])) --begin;
  while (begin > 0 && is_assistant(messages[begin - 1])) --begin;
  return begin;
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
