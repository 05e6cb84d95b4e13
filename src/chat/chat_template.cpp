#include "src/chat/chat_template.h"

#include <utility>

#include "base/error.h"

namespace moesaic {

ChatTemplate::ChatTemplate(ChatFiles files) : special_tokens_(std::move(files.special_tokens)) {
  for (const auto& [name, source] : files.templates) {
    templates_.emplace(name, jinja::Template::parse(source.text, source.name));
  }
}

const jinja::Template& ChatTemplate::template_for(const Chat& chat) const {
  if (!chat.tools.is_none()) {
    const auto for_tools = templates_.find("tool_use");
    if (for_tools != templates_.end()) return for_tools->second;
  }
  const auto usual = templates_.find("default");
  require(usual != templates_.end(), ErrorKind::file,
          "none of the model's chat templates is named \"default\"; the first is \"{}\"",
          templates_.begin()->first);
  return usual->second;
}

bool ChatTemplate::has_generation(const Chat& chat) const {
  return template_for(chat).has_generation();
}

jinja::Rendered ChatTemplate::render(const Chat& chat) const {
  jinja::Dict variables = special_tokens_;
  variables.set(jinja::Value("documents"), jinja::Value());
  for (const auto& [name, value] : chat.variables.entries()) variables.set(name, value);
  variables.set(jinja::Value("messages"), chat.messages);
  variables.set(jinja::Value("tools"), chat.tools);
  variables.set(jinja::Value("add_generation_prompt"), jinja::Value(chat.add_generation_prompt));
  return template_for(chat).render(variables);
}

}  // namespace moesaic
