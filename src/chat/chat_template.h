#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/chat/chat.h"
#include "src/chat/template_source.h"
#include "src/jinja/template.h"

namespace moesaic {

/// The chat templates of a model: conversations to text, as `apply_chat_template` of transformers
/// has it. Safe to use from several threads.
class ChatTemplate {
 public:
  /// Throws Error{file} for a template that is wrong or not supported.
  explicit ChatTemplate(ChatFiles files);
  static ChatTemplate from_directory(const std::string& dir,
                                     const std::optional<std::string>& template_file = {}) {
    return ChatTemplate(read_chat_files(dir, template_file));
  }

  /// The text, and what the template's generation blocks made of it. Throws Error{file} with the
  /// template's name and line, also for what the template itself refuses.
  [[nodiscard]] jinja::Rendered render(const Chat& chat) const;
  /// Whether the template for this conversation has generation blocks.
  [[nodiscard]] bool has_generation(const Chat& chat) const;

 private:
  [[nodiscard]] const jinja::Template& template_for(const Chat& chat) const;

  std::map<std::string, jinja::Template> templates_;
  jinja::Dict special_tokens_;
};

}  // namespace moesaic
