#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace moesaic {

/// Special tokens with a name of their own ("eos_token", "</s>"), of tokenizer_config.json or
/// special_tokens_map.json; null ones are left out. Throws Error{file} naming the member that is
/// wrong.
[[nodiscard]] std::vector<std::pair<std::string_view, std::string>> named_special_tokens(
    const Json& file);

/// What tokenizer_config.json says of a tokenizer besides what its tokenizer.json has, as
/// transformers 4 and 5 take it.
struct TokenizerConfig {
  /// Special tokens that it names.
  std::vector<std::string> special_tokens;
  /// What stands around a text in place of the post-processor of tokenizer.json.
  struct Ends {
    std::optional<std::string> begin;
    std::optional<std::string> end;
  };
  /// Of classes that make one of their own; std::nullopt: the file's.
  std::optional<Ends> ends;

  /// Of `dir`/tokenizer_config.json; empty if there is none. Throws Error{file} naming the member
  /// that is wrong.
  [[nodiscard]] static TokenizerConfig read(const std::string& dir);
};

}  // namespace moesaic
