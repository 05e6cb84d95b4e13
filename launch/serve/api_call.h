#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/serve/api_reply.h"
#include "launch/serve/api_request.h"
#include "src/generate/prompt_logprobs.h"
#include "src/serve/http_server.h"
#include "src/serve/request_desk.h"

namespace moesaic {

/// A call for texts whose answer is under way: what its requests bring, as the protocol has it.
class ApiCall {
 public:
  /// One of the texts that it asks for.
  struct Choice {
    Ticket ticket = 0;
    std::string echo{};                  // the prompt's text, if that is wanted
    std::vector<std::int32_t> prompt{};  // of a completion with log-probabilities
    // Once they are there:
    std::vector<std::vector<TokenLogprob>> prompt_logprobs{};  // of tokens 1, 2, ... of the prompt
    bool is_finished = false;
    ReplyChoice reply{};
  };

  /// `tokenizer` must outlive this.
  ApiCall(const Tokenizer& tokenizer, ReplyHead head, const ApiRequest& request,
          std::vector<Choice> choices, std::int64_t prompt_tokens,
          std::shared_ptr<HttpAnswer> answer);

  /// What a stream begins with is sent.
  void begin();

  [[nodiscard]] const std::vector<Choice>& choices() const noexcept { return choices_; }
  [[nodiscard]] bool is_complete() const noexcept { return left_ == 0; }

  void take(std::size_t choice, const NewToken& token);
  void take(std::size_t choice, const PromptLogprob& logprob);
  /// With the last choice the answer is complete.
  void take(std::size_t choice, const Finished& finished);
  /// Nothing more comes: says why.
  void fail(int status, std::string_view message);

 private:
  [[nodiscard]] std::string logprobs_of(std::size_t choice, const Finished& finished);
  [[nodiscard]] std::string logprobs_of(std::size_t choice, const NewToken& token);
  void complete();

  const Tokenizer& tokenizer_;
  ReplyHead head_;
  bool streams_;
  bool includes_usage_;
  bool wants_logprobs_;
  std::vector<Choice> choices_;
  std::vector<TextLogprobs> text_logprobs_;  // of choices that have prompts
  std::int64_t left_ = 0;                    // choices that are not finished
  ReplyUsage usage_;
  std::shared_ptr<HttpAnswer> answer_;
};

}  // namespace moesaic
