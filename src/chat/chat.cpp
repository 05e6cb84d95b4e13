#include "src/chat/chat.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "src/jinja/template.h"

namespace moesaic {
namespace {

using jinja::Dict;
using jinja::Value;

const Value* reasoning_of(const Dict& message) {
  constexpr std::array<std::string_view, 3> kNames = {"reasoning_content", "thinking", "reasoning"};
  for (const std::string_view name : kNames) {
    if (const Value* found = message.find(name)) return found;
  }
  return nullptr;
}

Value read_message(const Json& json) {
  require(json.is_object(), ErrorKind::file, "{}: a message must be an object", json.where());
  Dict plain;
  json.for_each([&](const std::string& key, const Json& member) {
    if (!member.is_null()) plain.set(Value(key), jinja::value_of(member));
  });
  const Value* reasoning = reasoning_of(plain);
  if (reasoning == nullptr) return jinja::make_dict(std::move(plain));
  Dict message;
  message.set(Value("thinking"), *reasoning);
  for (const auto& [key, value] : plain.entries()) message.set(key, value);
  message.set(Value("reasoning_content"), *reasoning);
  return jinja::make_dict(std::move(message));
}

}  // namespace

std::vector<Value> read_messages(const Json& list) {
  require(list.is_array() && list.size() > 0, ErrorKind::file,
          "{}: expected a list of at least one message", list.where());
  std::vector<Value> messages;
  list.for_each(
      [&](const std::string&, const Json& message) { messages.push_back(read_message(message)); });
  return messages;
}

Chat read_chat(const Json& object) {
  return read_chat(object, read_messages(object.at("messages")));
}

Chat read_chat(const Json& object, std::vector<Value> messages) {
  Chat chat;
  chat.messages = jinja::make_sequence(std::move(messages));
  if (const auto tools = object.find("tools")) {
    require(tools->is_array(), ErrorKind::file, "{}: expected a list", tools->where());
    chat.tools = jinja::value_of(*tools);
  }
  if (const auto prompt = object.find("add_generation_prompt")) {
    chat.add_generation_prompt = prompt->as_bool();
  }
  if (const auto variables = object.find("chat_template_kwargs")) {
    chat.variables = read_template_variables(*variables);
  }
  return chat;
}

bool is_assistant(const Value& message) {
  if (message.dict() == nullptr) return false;
  const Value* role = message.dict()->find("role");
  return role != nullptr && role->text() != nullptr && *role->text() == "assistant";
}

Dict read_template_variables(const Json& object) {
  require(object.is_object(), ErrorKind::file, "{}: expected an object", object.where());
  Dict variables;
  object.for_each([&](const std::string& key, const Json& value) {
    require(key != "messages" && key != "tools" && key != "add_generation_prompt", ErrorKind::file,
            "{}: it stands beside chat_template_kwargs, not in them", value.where());
    variables.set(Value(key), jinja::value_of(value));
  });
  return variables;
}

void add_variables(Chat& chat, const Dict& defaults) {
  for (const auto& [name, value] : defaults.entries()) {
    if (chat.variables.find(name) == nullptr) chat.variables.set(name, value);
  }
}

Chat chat_of_user(const std::string& text) {
  Dict message;
  message.set(Value("role"), Value("user"));
  message.set(Value("content"), Value(text));
  Chat chat;
  chat.messages = jinja::make_sequence({jinja::make_dict(std::move(message))});
  chat.add_generation_prompt = true;
  return chat;
}

}  // namespace moesaic
