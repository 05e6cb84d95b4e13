#include "src/chat/conversation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/jinja/print.h"

namespace moesaic {
namespace {

using jinja::Dict;
using jinja::Value;

Value message_of(std::string_view role, const std::string& text) {
  Dict message;
  message.set(Value("role"), Value(role));
  message.set(Value("content"), Value(text));
  return jinja::make_dict(std::move(message));
}

const std::string* text_of(const Value& message, std::string_view member) {
  const Value* found = message.dict()->find(member);
  return found == nullptr ? nullptr : found->text();
}

bool is_of(const Value& message, std::string_view role) {
  const std::string* own = text_of(message, "role");
  return own != nullptr && *own == role;
}

}  // namespace

Conversation::Conversation(Chat chat)
    : chat_(std::move(chat)), messages_(chat_.messages.sequence()->items) {
  chat_.messages = {};
}

bool Conversation::has_system() const {
  return !messages_.empty() && is_of(messages_.front(), "system");
}

std::string Conversation::system() const {
  const Value* content = has_system() ? messages_.front().dict()->find("content") : nullptr;
  if (content == nullptr) return "";
  return content->text() != nullptr ? *content->text() : jinja::to_json(*content, {});
}

void Conversation::set_system(const std::string& text) {
  if (has_system()) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), message_of("system", text));
}

void Conversation::add_defaults(const ConversationDefaults& defaults) {
  if (defaults.system && !has_system()) set_system(*defaults.system);
  add_variables(chat_, defaults.variables);
}

void Conversation::add(std::string_view role, const std::string& text) {
  messages_.push_back(message_of(role, text));
}

std::size_t Conversation::after_last_question() const {
  const auto found = std::find_if(messages_.rbegin(), messages_.rend(),
                                  [](const Value& message) { return is_of(message, "user"); });
  return static_cast<std::size_t>(std::distance(found, messages_.rend()));
}

bool Conversation::retract_answer() {
  const std::size_t end = after_last_question();
  if (end > 0) messages_.resize(end);
  return end > 0;
}

bool Conversation::undo() {
  if (!retract_answer()) return false;
  messages_.pop_back();
  return true;
}

void Conversation::clear() {
  messages_.resize(has_system() ? 1 : 0);
}

std::int64_t Conversation::answers() const {
  return std::ranges::count_if(messages_,
                               [](const Value& message) { return is_of(message, "assistant"); });
}

Chat Conversation::chat() const {
  Chat chat = chat_;
  chat.messages = jinja::make_sequence(messages_);
  chat.add_generation_prompt = true;
  return chat;
}

std::string Conversation::json() const {
  Dict all;
  all.set(Value("messages"), jinja::make_sequence(messages_));
  if (!chat_.tools.is_none()) all.set(Value("tools"), chat_.tools);
  if (!chat_.variables.entries().empty()) {
    all.set(Value("chat_template_kwargs"), jinja::make_dict(chat_.variables));
  }
  return jinja::to_json(jinja::make_dict(std::move(all)), {});
}

}  // namespace moesaic
