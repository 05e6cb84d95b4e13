#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/serve/api_request.h"
#include "src/generate/open_requests.h"
#include "src/serve/http_server.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// What all objects of one answer begin with.
struct ReplyHead {
  ApiKind kind = ApiKind::completion;
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
};

/// A text, or a piece of one.
struct ReplyChoice {
  std::int64_t index = 0;
  std::string text;
  std::string_view finish_reason{};  // empty: it goes on
  std::string logprobs{};            // JSON text; empty: nobody has asked
};

struct ReplyUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
};

/// The whole answer, JSON text as the other functions give it.
[[nodiscard]] std::string reply_json(const ReplyHead& head, std::span<const ReplyChoice> choices,
                                     const ReplyUsage& usage);

// Data of the events of a stream.
/// The first one of a chat's choice: who speaks.
[[nodiscard]] std::string role_json(const ReplyHead& head, std::int64_t index);
[[nodiscard]] std::string chunk_json(const ReplyHead& head, const ReplyChoice& choice);
[[nodiscard]] std::string usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage);

/// "stop" or "length".
[[nodiscard]] std::string_view finish_reason_text(StopReason reason);

/// {"error": {"message", "type", "param", "code"}}.
[[nodiscard]] HttpResponse api_error(int status, std::string_view message);
[[nodiscard]] HttpResponse json_response(std::string body);

/// Tokens of a text with their log-probabilities, for completions.
class TextLogprobs {
 public:
  /// Of the text that follows `prompt`, or, if `echo` is not empty, begins with it: then the tokens
  /// of the prompt are added first. `tokenizer` must outlive this.
  TextLogprobs(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
               std::string_view echo);

  /// The first token of a prompt, which nothing foretells.
  void add_first(std::int32_t token);
  /// The next one; `logprobs`: its own, then those of the likeliest tokens.
  void add_of_prompt(std::span<const TokenLogprob> logprobs);
  /// The same of the text behind the prompt.
  void add(std::span<const TokenLogprob> logprobs);
  /// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of the tokens that were added
  /// since the last call; offsets are in characters of the text.
  [[nodiscard]] std::string take_json();

 private:
  void add_token(std::int32_t token, bool stands_in_text);
  void add_logprobs(std::span<const TokenLogprob> logprobs);

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  std::int64_t offset_ = 0;
  std::vector<std::string> tokens_;    // JSON text each
  std::vector<std::string> logprobs_;  // the same
  std::vector<std::string> top_;       // the same
  std::vector<std::int64_t> offsets_;
};

}  // namespace moesaic
