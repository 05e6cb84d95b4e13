#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moesaic {

/// One step of a decoder at work. It takes tokens in parts and hands what it makes of them to the
/// next stage as soon as no later token can change it.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  /// The next part of the current token, UTF-8; `ends_token` if it is the last one.
  virtual void push(std::string_view part, bool ends_token) = 0;
  /// No more tokens follow.
  virtual void finish() = 0;
};

/// The `decoder` of tokenizer.json: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip and
/// Sequences of them. Immutable, safe to use from several threads.
class Decoder {
 public:
  /// Puts a space between tokens, as the library does where there is no decoder.
  Decoder();
  /// Throws Error{file} for another type, a member that is wrong, or steps that could make a token
  /// absurdly longer.
  explicit Decoder(const Json& part) { add(part, 0); }

  /// A decoding in progress.
  class Stream {
   public:
    /// Adds a token and appends to `out` the text that is certain now.
    void push(std::string_view token, std::string& out);
    /// Ends the text and appends the rest of it.
    void finish(std::string& out);

   private:
    friend class Decoder;
    void take(std::string& out);
    std::unique_ptr<std::string> text_ = std::make_unique<std::string>();
    std::vector<std::unique_ptr<DecodeStage>> stages_;  // the last one first
  };
  [[nodiscard]] Stream start() const;

 private:
  using MakeStage = std::function<std::unique_ptr<DecodeStage>(DecodeStage& next)>;
  void add(const Json& part, int depth);
  void count_growth(const Json& replace);
  std::vector<MakeStage> steps_;
  std::size_t growth_ = 1;  // how many times as long they make a token at most
};

}  // namespace moesaic
