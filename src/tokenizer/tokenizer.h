#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/decoder.h"
#include "src/tokenizer/encoded_text.h"

namespace moesaic {

/// A tokenizer read from tokenizer.json, with the ids and texts of the `tokenizers` library. Copies
/// share what was read; all methods are const and safe to call from several threads.
///
/// `truncation` and `padding` of the file are not applied, as `transformers` does not apply them
/// either.
class Tokenizer {
 public:
  /// The stages of encoding and decoding (tokenizer.cpp).
  struct Parts;

  /// Reads `dir`/tokenizer.json, and what tokenizer_config.json beside it says of special tokens
  /// (TokenizerConfig). Throws Error{file} naming the file and the part that is missing, wrong or
  /// not supported.
  static Tokenizer from_directory(const std::string& dir);
  /// The same where `dir`/tokenizer.json is read already: `file`.
  static Tokenizer from_directory(const std::string& dir, const Json& file);
  /// Reads the text of a tokenizer.json; `document` stands in messages.
  static Tokenizer from_json(std::string_view text, std::string document);

  /// The ids of `text`, with the tokens of the post-processor (such as a begin-of-sequence) if
  /// `add_special_tokens`. What is not UTF-8 counts as U+FFFD (replace_invalid_utf8).
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 bool add_special_tokens = true) const;
  /// The same with the bytes of `text` that each token stands for. A token that was normalized has
  /// those of what it was made of; where `text` is not UTF-8, bytes count in what it is taken for.
  [[nodiscard]] EncodedText encode_with_spans(std::string_view text,
                                              bool add_special_tokens = true) const;
  /// The text of `ids`, UTF-8. Ids that no token has are left out, and special tokens if
  /// `skip_special_tokens`.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids,
                                   bool skip_special_tokens = true) const;

  /// The token as the vocabulary spells it ("Ġthe", "▁the", "<|im_end|>"); empty for an id that no
  /// token has.
  [[nodiscard]] std::string token(std::int32_t id) const;
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const;
  /// The largest id plus one, added tokens included.
  [[nodiscard]] std::int64_t vocab_size() const;
  /// Whether the token is an added one that is marked as special.
  [[nodiscard]] bool is_special(std::int32_t id) const;

 private:
  friend class StreamDecoder;
  [[nodiscard]] EncodedText encoded(std::string_view text, bool add_special_tokens,
                                    bool with_spans) const;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

/// Decodes token by token. The texts of all push() and of finish(), joined, are decode() of all
/// ids; a text comes out as soon as no later token can change it, and always in whole characters.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  /// The text that is certain after `id`; often empty in the middle of a character.
  [[nodiscard]] std::string push(std::int32_t id);
  /// The rest. Nothing may be pushed afterwards.
  [[nodiscard]] std::string finish();

 private:
  std::shared_ptr<const Tokenizer::Parts> parts_;
  bool skip_special_tokens_;
  Decoder::Stream stream_;
};

}  // namespace moesaic
