#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/added_tokens.h"

namespace moesaic {

/// The special tokens of a model's tokenizer_config.json. Where that has no added_tokens_decoder,
/// those of special_tokens_map.json are joined to them, which win where names are the same.
struct SpecialTokens {
  /// "eos_token" and its token; names of the model's own too.
  std::vector<std::pair<std::string, AddedToken>> named;
  std::vector<AddedToken> others;

  /// Of `dir` with this tokenizer_config.json, without ids. Throws Error{file} naming the member
  /// that is wrong.
  [[nodiscard]] static SpecialTokens read(const std::string& dir,
                                          const std::optional<Json>& config);
  /// The text of the one of that name.
  [[nodiscard]] std::optional<std::string> find(std::string_view name) const;
};

/// tokenizer_config.json of a model, if there is one.
[[nodiscard]] std::optional<Json> read_tokenizer_config(const std::string& dir);

/// What tokenizer_config.json says of a tokenizer besides what its tokenizer.json has, as
/// transformers 4 and 5 take it.
struct TokenizerConfig {
  SpecialTokens special_tokens;
  /// Those of added_tokens_decoder by the ids there, which are not theirs: a token that
  /// tokenizer.json has keeps its id, others get the next ones. Their flags count.
  std::vector<AddedToken> added;
  std::optional<Json> file;  ///< that tells all this, for messages
  /// What stands around a text in place of the post-processor of tokenizer.json.
  struct Ends {
    std::optional<std::string> begin;
    std::optional<std::string> end;
  };
  /// Of classes that make one of their own; std::nullopt: the file's.
  std::optional<Ends> ends;

  /// Of `dir`; empty if it has no such file. Throws Error{file} naming the member that is wrong.
  [[nodiscard]] static TokenizerConfig read(const std::string& dir);
};

}  // namespace moesaic
