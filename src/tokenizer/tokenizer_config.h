#pragma once

#include <optional>
#include <string>
#include <vector>

namespace moesaic {

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
