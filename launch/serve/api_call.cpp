#include "launch/serve/api_call.h"

#include <fmt/core.h>

#include <array>

#include "launch/results/logprobs_json.h"

namespace moesaic {

ApiCall::ApiCall(const Tokenizer& tokenizer, ReplyHead head, const ApiRequest& request,
                 std::vector<Choice> choices, std::int64_t prompt_tokens,
                 std::shared_ptr<HttpAnswer> answer)
    : tokenizer_(tokenizer),
      head_(std::move(head)),
      streams_(request.stream),
      includes_usage_(request.include_usage),
      wants_logprobs_(request.fields.logprobs.has_value()),
      choices_(std::move(choices)),
      left_(std::ssize(choices_)),
      usage_{.prompt_tokens = prompt_tokens, .completion_tokens = 0},
      answer_(std::move(answer)) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].reply.index = static_cast<std::int64_t>(i);
    const Choice& own = choices_[i];
    if (!own.prompt.empty()) text_logprobs_.emplace_back(tokenizer, own.prompt, own.echo);
  }
}

void ApiCall::begin() {
  if (!streams_) return;
  answer_->begin_events();
  for (const Choice& choice : choices_) {
    const std::int64_t index = choice.reply.index;
    if (head_.kind == ApiKind::chat) {
      answer_->send_event(role_json(head_, index));
    } else if (!choice.echo.empty()) {
      answer_->send_event(chunk_json(head_, {.index = index, .text = choice.echo}));
    }
  }
}

std::string ApiCall::logprobs_of(std::size_t choice, const NewToken& token) {
  if (!wants_logprobs_) return "";
  if (head_.kind == ApiKind::chat) {
    const std::array one = {token.logprobs};
    return logprobs_json(one, tokenizer_);
  }
  text_logprobs_[choice].add(token.logprobs);
  return text_logprobs_[choice].take_json();
}

std::string ApiCall::logprobs_of(std::size_t choice, const Finished& finished) {
  if (!wants_logprobs_) return "";
  if (head_.kind == ApiKind::chat) return logprobs_json(finished.logprobs, tokenizer_);
  const Choice& own = choices_[choice];
  TextLogprobs& logprobs = text_logprobs_[choice];
  if (!own.echo.empty()) {
    logprobs.add_first(own.prompt.front());
    for (const std::vector<TokenLogprob>& token : own.prompt_logprobs) {
      logprobs.add_of_prompt(token);
    }
  }
  for (const std::vector<TokenLogprob>& token : finished.logprobs) logprobs.add(token);
  return logprobs.take_json();
}

void ApiCall::take(std::size_t choice, const NewToken& token) {
  if (!streams_) return;
  const std::string logprobs = logprobs_of(choice, token);
  if (token.text.empty() && logprobs.empty()) return;
  answer_->send_event(chunk_json(head_, {.index = choices_[choice].reply.index,
                                         .text = token.text,
                                         .finish_reason = {},
                                         .logprobs = logprobs}));
}

void ApiCall::take(std::size_t choice, const PromptLogprob& logprob) {
  Choice& own = choices_[choice];
  if (logprob.position >= std::ssize(own.prompt)) return;
  const auto index = static_cast<std::size_t>(logprob.position - 1);
  if (own.prompt_logprobs.size() <= index) own.prompt_logprobs.resize(index + 1);
  own.prompt_logprobs[index].push_back(logprob.logprob);
}

void ApiCall::take(std::size_t choice, const Finished& finished) {
  Choice& own = choices_[choice];
  usage_.completion_tokens += std::ssize(finished.tokens);
  own.is_finished = true;
  own.reply.finish_reason = finish_reason_text(finished.reason);
  if (streams_) {
    own.reply.text = finished.rest;
    answer_->send_event(chunk_json(head_, own.reply));
  } else {
    own.reply.text = own.echo + finished.text;
    own.reply.logprobs = logprobs_of(choice, finished);
  }
  if (--left_ == 0) complete();
}

void ApiCall::complete() {
  if (!streams_) {
    std::vector<ReplyChoice> replies;
    for (Choice& choice : choices_) replies.push_back(std::move(choice.reply));
    answer_->send(json_response(reply_json(head_, replies, usage_)));
    return;
  }
  if (includes_usage_) answer_->send_event(usage_chunk_json(head_, usage_));
  answer_->send_event("[DONE]");
  answer_->end_events();
}

void ApiCall::fail(int status, std::string_view message) {
  left_ = 0;
  answer_->send(api_error(status, message));
}

}  // namespace moesaic
