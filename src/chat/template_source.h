#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/jinja/value.h"

namespace moesaic {

/// Where a template came from.
struct TemplateSource {
  std::string text;
  std::string name;  ///< stands in messages
};

/// The templates of a model, and its special tokens.
struct ChatFiles {
  /// By name; the usual one is "default", one for conversations with tools "tool_use".
  std::map<std::string, TemplateSource> templates;
  /// bos_token, eos_token and the like (SpecialTokens), as templates see them.
  jinja::Dict special_tokens;
};

/// Reads them: `template_file` if it is given, else `dir`/chat_template.jinja with
/// `dir`/additional_chat_templates/NAME.jinja, else chat_template of `dir`/tokenizer_config.json (a
/// string, or a list of names and templates), else `dir`/chat_template.json. Throws Error{file} for
/// what is wrong; nothing if there is no template.
[[nodiscard]] std::optional<ChatFiles> find_chat_files(
    const std::string& dir, const std::optional<std::string>& template_file);

/// The same for who needs one: throws Error{file} if there is none.
[[nodiscard]] ChatFiles read_chat_files(const std::string& dir,
                                        const std::optional<std::string>& template_file);

}  // namespace moesaic
