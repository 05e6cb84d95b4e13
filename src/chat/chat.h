#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "src/jinja/value.h"

namespace moesaic {

/// A conversation, and what a template is to make of it.
struct Chat {
  jinja::Value messages;  ///< a list of dicts, at least one
  jinja::Value tools;     ///< a list, or None
  bool add_generation_prompt = false;
  jinja::Dict variables;  ///< what else the template may ask for (chat_template_kwargs)
};

/// Reads {"messages", "tools", "add_generation_prompt", "chat_template_kwargs"}; all but the
/// messages may be missing. Members of messages that are null are left out, and reasoning that
/// stands under one of its names (reasoning_content, thinking, reasoning) is there under the first
/// two, as transformers 5 has it. Throws Error{file} for what is wrong; other members are ignored.
[[nodiscard]] Chat read_chat(const Json& object);
/// The same of `messages`, those of read_messages(), in place of the object's.
[[nodiscard]] Chat read_chat(const Json& object, std::vector<jinja::Value> messages);
/// Those of a list that holds at least one. Throws Error{file}.
[[nodiscard]] std::vector<jinja::Value> read_messages(const Json& list);

/// Whether an assistant speaks in this message of a chat.
[[nodiscard]] bool is_assistant(const jinja::Value& message);

/// Variables of a template, an object: what "chat_template_kwargs" holds. Throws Error{file} if it
/// is none, or names what stands beside it.
[[nodiscard]] jinja::Dict read_template_variables(const Json& object);
/// Gives the chat the variables that it does not have yet.
void add_variables(Chat& chat, const jinja::Dict& defaults);

/// A conversation of one turn of the user.
[[nodiscard]] Chat chat_of_user(const std::string& text);

}  // namespace moesaic
