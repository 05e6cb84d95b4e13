#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/encoded_text.h"

namespace moesaic {

/// The `post_processor` of tokenizer.json, which puts special tokens around a text:
/// TemplateProcessing (for single texts), ByteLevel (which adds nothing) and Sequences of them.
class PostProcessor {
 public:
  using IsToken = std::function<bool(std::int32_t id)>;
  /// Adds nothing.
  PostProcessor() = default;
  /// Throws Error{file} for another type, or a template with an id for which `is_token` is false.
  PostProcessor(const Json& part, const IsToken& is_token) { add(part, is_token, 0); }

  /// Puts these tokens, if any, before and behind a text.
  PostProcessor(std::optional<std::int32_t> begin, std::optional<std::int32_t> end);

  /// `text` with the tokens of the templates; without them if `add_special_tokens` is
  /// false (a template can still repeat or drop the text). Throws Error{file} if there are absurdly
  /// more of them.
  [[nodiscard]] EncodedText apply(EncodedText text, bool add_special_tokens) const;

 private:
  /// Where the text goes if `tokens` is empty, else these special tokens.
  struct Slot {
    std::vector<std::int32_t> tokens;
  };
  using Template = std::vector<Slot>;

  void add(const Json& part, const IsToken& is_token, int depth);
  std::vector<Template> templates_;
};

}  // namespace moesaic
