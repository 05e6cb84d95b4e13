#include "src/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/small_file.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, 7> kNamed = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

constexpr std::array<std::string_view, 2> kLists = {"additional_special_tokens",
                                                    "extra_special_tokens"};

AddedToken token_of(const Json& token) {
  if (token.is_object()) return read_added_token(token, true);
  return {.content = token.as_string(), .special = true};
}

std::optional<Json> read_list(const std::string& dir, const char* name) {
  const std::string path = (std::filesystem::path(dir) / name).string();
  if (!file_exists(path)) return std::nullopt;
  return Json::read_file(path, kMaxListBytes);
}

bool has_flag(const Json& config, std::string_view name) {
  const auto member = config.find(name);
  return member && !member->is_null() && member->as_bool();
}

std::vector<AddedToken> read_added(const Json& config) {
  const auto decoder = config.find("added_tokens_decoder");
  std::map<std::int32_t, AddedToken> by_id;
  if (!decoder) return {};
  decoder->for_each([&](const std::string& id, const Json& token) {
    std::int32_t number = -1;
    const auto [stop, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    require(error == std::errc() && stop == id.data() + id.size() && number >= 0, ErrorKind::file,
            "{}: \"{}\" is not a token's id", token.where(), id);
    by_id[number] = read_added_token(token, has_flag(token, "special"));
  });
  std::vector<AddedToken> added;
  for (const auto& [id, token] : by_id) added.push_back(token);
  return added;
}

/// GPT-NeoX, which OLMoE has too: what `add_bos_token` and `add_eos_token` say, whatever the file.
std::optional<TokenizerConfig::Ends> ends_of_class(const Json& config,
                                                   const SpecialTokens& tokens) {
  const auto name = config.find("tokenizer_class");
  if (!name || !name->is_string()) return std::nullopt;
  const std::string own = name->as_string();
  if (own != "GPTNeoXTokenizer" && own != "GPTNeoXTokenizerFast") return std::nullopt;
  constexpr const char* kUsual = "<|endoftext|>";
  TokenizerConfig::Ends ends;
  const auto end = [&](std::string_view flag, std::string_view token) {
    return has_flag(config, flag) ? std::optional(tokens.find(token).value_or(kUsual))
                                  : std::nullopt;
  };
  ends.begin = end("add_bos_token", "bos_token");
  ends.end = end("add_eos_token", "eos_token");
  return ends;
}

}  // namespace

std::optional<Json> read_tokenizer_config(const std::string& dir) {
  return read_list(dir, "tokenizer_config.json");
}

SpecialTokens SpecialTokens::read(const std::string& dir, const std::optional<Json>& config) {
  SpecialTokens tokens;
  std::set<std::string> names;  // null ones too
  const auto add_named = [&](const std::string& name, const Json& token) {
    const bool is_first = names.insert(name).second;
    if (is_first && !token.is_null()) tokens.named.emplace_back(name, token_of(token));
  };
  const auto add_file = [&](const Json& file) {
    file.for_each([&](const std::string& name, const Json& value) {
      if (std::ranges::find(kNamed, name) != kNamed.end()) add_named(name, value);
      if (std::ranges::find(kLists, name) == kLists.end() || value.is_null()) return;
      value.for_each([&](const std::string& own_name, const Json& token) {
        if (value.is_object()) return add_named(own_name, token);
        tokens.others.push_back(token_of(token));
      });
    });
  };
  if (!config || !config->find("added_tokens_decoder")) {
    if (const auto map = read_list(dir, "special_tokens_map.json")) add_file(*map);
  }
  if (config) add_file(*config);
  return tokens;
}

std::optional<std::string> SpecialTokens::find(std::string_view name) const {
  for (const auto& [known, token] : named) {
    if (known == name) return token.content;
  }
  return std::nullopt;
}

TokenizerConfig TokenizerConfig::read(const std::string& dir) {
  const std::optional<Json> config = read_tokenizer_config(dir);
  TokenizerConfig result{
      .special_tokens = SpecialTokens::read(dir, config), .added = {}, .file = config, .ends = {}};
  if (!config) return result;
  result.added = read_added(*config);
  result.ends = ends_of_class(*config, result.special_tokens);
  return result;
}

}  // namespace moesaic
