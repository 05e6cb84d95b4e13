#include "src/tokenizer/tokenizer_config.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "base/small_file.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, 7> kNamed = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

constexpr std::array<std::string_view, 2> kLists = {"additional_special_tokens",
                                                    "extra_special_tokens"};

/// Of a token, alone or with what it takes along.
std::string text_of(const Json& token) {
  return (token.is_object() ? token.at("content") : token).as_string();
}

std::optional<Json> read_list(const std::string& dir, const char* name) {
  const std::string path = (std::filesystem::path(dir) / name).string();
  if (!file_exists(path)) return std::nullopt;
  return Json::read_file(path, kMaxListBytes);
}
std::optional<Json> read_config(const std::string& dir) {
  return read_list(dir, "tokenizer_config.json");
}

bool has_flag(const Json& config, std::string_view name) {
  const auto member = config.find(name);
  return member && !member->is_null() && member->as_bool();
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

SpecialTokens SpecialTokens::read(const std::string& dir) {
  const std::optional<Json> config = read_config(dir);
  std::optional<Json> map;
  if (!config || !config->find("added_tokens_decoder")) {
    map = read_list(dir, "special_tokens_map.json");
  }
  const auto member = [&](std::string_view name) {
    const auto found = map ? map->find(name) : std::nullopt;
    return found || !config ? found : config->find(name);
  };
  SpecialTokens tokens;
  for (const std::string_view name : kNamed) {
    if (const auto token = member(name)) tokens.named.emplace_back(name, text_of(*token));
  }
  for (const std::string_view name : kLists) {
    const auto more = member(name);
    if (!more) continue;
    more->for_each([&](const std::string& own_name, const Json& token) {
      if (more->is_object()) {
        tokens.named.emplace_back(own_name, text_of(token));
      } else {
        tokens.others.push_back(text_of(token));
      }
    });
  }
  return tokens;
}

std::optional<std::string> SpecialTokens::find(std::string_view name) const {
  for (const auto& [known, token] : named) {
    if (known == name) return token;
  }
  return std::nullopt;
}

TokenizerConfig TokenizerConfig::read(const std::string& dir) {
  TokenizerConfig result{.special_tokens = SpecialTokens::read(dir), .ends = {}};
  if (const auto config = read_config(dir)) {
    result.ends = ends_of_class(*config, result.special_tokens);
  }
  return result;
}

}  // namespace moesaic
