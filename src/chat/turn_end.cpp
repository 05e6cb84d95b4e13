#include "src/chat/turn_end.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "src/chat/conversation.h"

namespace moesaic {

std::optional<std::int32_t> turn_end_token(const ChatTemplate& chat_template,
                                           const Tokenizer& tokenizer) {
  const std::string answer = "moesaic";
  Conversation conversation;
  conversation.ask("?");
  conversation.answer(answer);
  Chat chat = conversation.chat();
  chat.add_generation_prompt = false;
  std::string text;
  try {
    text = chat_template.render(chat).text;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    return std::nullopt;
  }
  const std::size_t at = text.rfind(answer);
  if (at == std::string::npos) return std::nullopt;
  const std::vector<std::int32_t> rest = tokenizer.encode(text.substr(at + answer.size()), false);
  if (rest.empty() || !tokenizer.is_special(rest.front())) return std::nullopt;
  return rest.front();
}

}  // namespace moesaic
