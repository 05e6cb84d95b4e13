#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/generate/rank_sequences.h"
#include "src/generate/text_stream.h"

namespace moesaic {

/// A token that a request got. The token that ends a sequence, and is not part of it, is told with
/// Finished alone.
struct NewToken {
  RequestId request = 0;
  std::int32_t token = 0;
  std::string text;  // what is certain now of the text (TextStream), if there is a tokenizer
  /// Its own, then those of the likeliest tokens, as many as the request wants.
  std::vector<TokenLogprob> logprobs{};
};

/// The first token of a request whose values are not finite: damaged weights, or an overflow.
struct Damage {
  std::int64_t position = 0;
  std::string place;  // "layer 3", "the embedding", "the output matrix": where they came to be
};

/// A request that has ended.
struct Finished {
  RequestId request = 0;
  StopReason reason = StopReason::length;
  std::vector<std::int32_t> tokens;  // all new ones, without the stop token
  /// [tokens][1 + Request::logprobs], or empty: NewToken::logprobs.
  std::vector<std::vector<TokenLogprob>> logprobs;
  std::string text;  // the whole continuation, up to a stop string
  std::string rest;  // the end of `text` that no NewToken had
  std::optional<std::int32_t> stop_token;
  std::optional<std::string> stop_string;
  std::optional<Damage> damage;  // StopReason::damaged
};

/// Throws Error{file} if `finished` is damaged; `what` names the request.
void require_undamaged(const Finished& finished, std::string_view what);

/// What rank 0 knows of requests that have not ended.
class OpenRequests {
 public:
  /// Without a tokenizer there are no texts.
  explicit OpenRequests(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(open_); }
  [[nodiscard]] bool contains(RequestId id) const { return open_.contains(id); }
  void open(RequestId id, const Request& request);
  /// Ends a request that is not wanted any more.
  [[nodiscard]] std::optional<Finished> cancel(RequestId id);

  struct Outcome {
    std::optional<NewToken> token;
    std::optional<Finished> finished;
  };
  /// `logprobs` may be followed by ones of no token. Nothing for a request that is not open any
  /// more.
  [[nodiscard]] Outcome take(const SequenceNews& news, std::span<const TokenLogprob> logprobs);

 private:
  struct Open {
    std::vector<std::int32_t> tokens;
    std::vector<std::vector<TokenLogprob>> logprobs;
    std::optional<TextStream> stream;
    std::string text;
  };
  [[nodiscard]] Finished finish(RequestId id, StopReason reason);

  const Tokenizer* tokenizer_;
  std::unordered_map<RequestId, Open> open_;
};

}  // namespace moesaic
