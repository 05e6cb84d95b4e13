#include "src/tokenizer/tokenizer_config.h"

#include <array>
#include <filesystem>
#include <string_view>

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

/// std::nullopt: it is null, or not there.
std::optional<std::string> token_of(const Json& config, std::string_view name) {
  const auto member = config.find(name);
  if (!member || member->is_null()) return std::nullopt;
  return text_of(*member);
}

bool has_flag(const Json& config, std::string_view name) {
  const auto member = config.find(name);
  return member && !member->is_null() && member->as_bool();
}

/// GPT-NeoX, which OLMoE has too: what `add_bos_token` and `add_eos_token` say, whatever the file.
std::optional<TokenizerConfig::Ends> ends_of_class(const Json& config) {
  const auto name = config.find("tokenizer_class");
  if (!name || !name->is_string()) return std::nullopt;
  const std::string own = name->as_string();
  if (own != "GPTNeoXTokenizer" && own != "GPTNeoXTokenizerFast") return std::nullopt;
  constexpr const char* kUsual = "<|endoftext|>";
  TokenizerConfig::Ends ends;
  const auto end = [&](std::string_view flag, std::string_view token) {
    return has_flag(config, flag) ? std::optional(token_of(config, token).value_or(kUsual))
                                  : std::nullopt;
  };
  ends.begin = end("add_bos_token", "bos_token");
  ends.end = end("add_eos_token", "eos_token");
  return ends;
}

}  // namespace

std::vector<std::pair<std::string_view, std::string>> named_special_tokens(const Json& file) {
  std::vector<std::pair<std::string_view, std::string>> named;
  for (const std::string_view name : kNamed) {
    if (auto token = token_of(file, name)) named.emplace_back(name, *std::move(token));
  }
  return named;
}

TokenizerConfig TokenizerConfig::read(const std::string& dir) {
  const std::string path = (std::filesystem::path(dir) / "tokenizer_config.json").string();
  if (!file_exists(path)) return {};
  const Json config = Json::read_file(path, kMaxListBytes);
  TokenizerConfig result{.special_tokens = {}, .ends = ends_of_class(config)};
  const auto add = [&](std::optional<std::string> token) {
    if (token) result.special_tokens.push_back(*std::move(token));
  };
  for (const auto& [name, token] : named_special_tokens(config)) add(token);
  for (const std::string_view name : kLists) {  // of objects each has a name
    const auto more = config.find(name);
    if (!more || more->is_null()) continue;
    more->for_each([&](const std::string&, const Json& token) { add(text_of(token)); });
  }
  return result;
}

}  // namespace moesaic
