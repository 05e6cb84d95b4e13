#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "src/tokenizer/decoder.h"
#include "src/tokenizer/metaspace.h"
#include "src/tokenizer/regex.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {

/// Gathers the parts of a token for stages that need it whole.
class WholeTokenStage : public DecodeStage {
 public:
  explicit WholeTokenStage(DecodeStage& next) : next_(next) {}
  void push(std::string_view part, bool ends_token) final;
  void finish() override { next_.finish(); }

 protected:
  virtual void push_token(std::string_view token) = 0;
  DecodeStage& next_;

 private:
  std::string token_;
};

/// Characters that stand for bytes become those bytes, and all bytes together one text, with U+FFFD
/// for what is not UTF-8. A token with any other character is taken as it is.
class ByteLevelStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override;

 private:
  void push_token(std::string_view token) override;
  Utf8Repair repair_;
};

/// A run of tokens "<0xE2>" becomes the text of these bytes, or a U+FFFD for each of them if they
/// are not UTF-8.
class ByteFallbackStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override;

 private:
  void push_token(std::string_view token) override;
  void flush();
  std::string bytes_;
};

/// Replaces in each token.
class ReplaceStage final : public WholeTokenStage {
 public:
  ReplaceStage(DecodeStage& next, Regex pattern, std::string content)
      : WholeTokenStage(next), pattern_(std::move(pattern)), content_(std::move(content)) {}

 private:
  void push_token(std::string_view token) override {
    next_.push(pattern_.replace(token, content_), true);
  }
  Regex pattern_;
  std::string content_;
};

/// Joins all tokens to one.
class FuseStage final : public DecodeStage {
 public:
  explicit FuseStage(DecodeStage& next) : next_(next) {}
  void push(std::string_view part, bool /*ends_token*/) override { next_.push(part, false); }
  void finish() override;

 private:
  DecodeStage& next_;
};

/// How many of one character to cut off each token.
struct StripOptions {
  char32_t content = ' ';
  std::int64_t start = 0;  ///< at most so many in front
  std::int64_t stop = 0;   ///< at most so many at the end
};

class StripStage final : public DecodeStage {
 public:
  StripStage(DecodeStage& next, StripOptions options) : next_(next), options_(options) {}
  void push(std::string_view part, bool ends_token) override;
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
  StripOptions options_;
  std::int64_t cut_ = 0;   // from the front of the current token
  bool in_front_ = true;   // nothing but cut characters so far
  std::int64_t held_ = 0;  // characters `content` at the end so far, at most options_.stop
};

/// The mark of a space becomes a space; in the first token it vanishes unless nothing was
/// prepended.
class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(DecodeStage& next, MetaspaceOptions options) : next_(next), options_(options) {}
  void push(std::string_view part, bool ends_token) override;
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
  MetaspaceOptions options_;
  bool in_first_token_ = true;
};

/// A space between tokens.
class JoinStage final : public DecodeStage {
 public:
  explicit JoinStage(DecodeStage& next) : next_(next) {}
  void push(std::string_view part, bool ends_token) override;
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
  bool between_ = false;
};

}  // namespace moesaic
