#include "src/chat/template_source.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// The longest templates in use have a tenth of it.
constexpr std::uintmax_t kMaxTemplateBytes = 1 << 20;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

TemplateSource read_template(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  require(!error, ErrorKind::file, "{}: no such file", path.string());
  require(bytes <= kMaxTemplateBytes, ErrorKind::file,
          "{}: {} bytes, a chat template has at most {}", path.string(), bytes, kMaxTemplateBytes);
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (bytes > 0) text << stream.rdbuf();
  require(stream.good() && !text.fail(), ErrorKind::file, "{}: cannot be read", path.string());
  return {text.str(), path.string()};
}

void read_template_files(const fs::path& dir, ChatFiles& files) {
  const fs::path main = dir / "chat_template.jinja";
  if (is_file(main)) files.templates["default"] = read_template(main);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir / "additional_chat_templates", error)) {
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

void add_special_tokens(const Json& config, jinja::Dict& tokens) {
  static const std::set<std::string> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};
  config.for_each([&](const std::string& key, const Json& value) {
    if (!kNames.contains(key) || value.is_null()) return;
    const Json text = value.is_object() ? value.at("content") : value;
    tokens.set(jinja::Value(key), jinja::Value(text.as_string()));
  });
}

std::optional<Json> read_tokenizer_config(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  if (!is_file(path)) return std::nullopt;
  return Json::read_file(path.string());
}

jinja::Dict special_tokens(const fs::path& folder, const std::optional<Json>& config) {
  jinja::Dict tokens;
  const fs::path map = folder / "special_tokens_map.json";
  if (is_file(map)) add_special_tokens(Json::read_file(map.string()), tokens);
  if (config) add_special_tokens(*config, tokens);
  return tokens;
}

}  // namespace

std::optional<std::string> read_end_token(const std::string& dir) {
  const jinja::Dict tokens = special_tokens(dir, read_tokenizer_config(dir));
  const jinja::Value* found = tokens.find("eos_token");
  if (found == nullptr) return std::nullopt;
  return *found->text();
}

ChatFiles read_chat_files(const std::string& dir, const std::optional<std::string>& template_file) {
  ChatFiles files;
  const fs::path folder(dir);
  const std::optional<Json> config = read_tokenizer_config(folder);
  files.special_tokens = special_tokens(folder, config);
  if (template_file) {
    files.templates["default"] = read_template(*template_file);
    return files;
  }
  read_template_files(folder, files);
  if (files.templates.empty() && config) read_member(*config, files);
  if (files.templates.empty() && is_file(folder / "chat_template.json")) {
    read_member(Json::read_file((folder / "chat_template.json").string()), files);
  }
  require(!files.templates.empty(), ErrorKind::file,
          "{}: no chat template: neither chat_template.jinja nor one in tokenizer_config.json; "
          "--chat-template FILE gives one",
          dir);
  return files;
}

}  // namespace moesaic
