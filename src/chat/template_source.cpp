#include "src/chat/template_source.h"

#include <filesystem>

#include "base/directory.h"
#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"
#include "src/tokenizer/tokenizer_config.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// The longest templates in use have a tenth of it.
constexpr std::int64_t kMaxTemplateBytes = 1 << 20;

TemplateSource read_template(const fs::path& path) {
  return {read_file(path.string(), kMaxTemplateBytes), path.string()};
}

void read_template_files(const fs::path& dir, ChatFiles& files) {
  const fs::path main = dir / "chat_template.jinja";
  if (file_exists(main.string())) files.templates["default"] = read_template(main);
  std::error_code error;
  for (const auto& entry : entries_of(dir / "additional_chat_templates", error)) {
    if (entry.path().extension() != ".jinja") continue;
    files.templates[entry.path().stem().string()] = read_template(entry.path());
  }
}

/// The member chat_template of a configuration: one template, or several with names.
void read_member(const Json& config, ChatFiles& files) {
  const auto member = config.find("chat_template");
  if (!member) return;
  if (member->is_string()) {
    files.templates["default"] = {member->as_string(), member->where()};
    return;
  }
  require(member->is_array(), ErrorKind::file,
          "{}: expected a template, or a list of names and templates", member->where());
  member->for_each([&](const std::string&, const Json& entry) {
    const Json text = entry.at("template");
    files.templates[entry.at("name").as_string()] = {text.as_string(), text.where()};
  });
}

}  // namespace

std::optional<ChatFiles> find_chat_files(const std::string& dir,
                                         const std::optional<std::string>& template_file) {
  ChatFiles files;
  const fs::path folder(dir);
  const std::optional<Json> config = read_tokenizer_config(dir);
  for (const auto& [name, token] : SpecialTokens::read(dir, config).named) {
    files.special_tokens.set(jinja::Value(name), jinja::Value(token.content));
  }
  if (template_file) {
    files.templates["default"] = read_template(*template_file);
    return files;
  }
  read_template_files(folder, files);
  if (files.templates.empty() && config) read_member(*config, files);
  const std::string json_path = (folder / "chat_template.json").string();
  if (files.templates.empty() && file_exists(json_path)) {
    read_member(Json::read_file(json_path, kMaxConfigBytes), files);
  }
  if (files.templates.empty()) return std::nullopt;
  return files;
}

ChatFiles read_chat_files(const std::string& dir, const std::optional<std::string>& template_file) {
  std::optional<ChatFiles> files = find_chat_files(dir, template_file);
  require(files.has_value(), ErrorKind::file,
          "{}: no chat template: neither chat_template.jinja nor one in tokenizer_config.json; "
          "--chat-template FILE gives one",
          dir);
  return *std::move(files);
}

}  // namespace moesaic
