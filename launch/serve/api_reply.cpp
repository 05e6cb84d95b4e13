#include "launch/serve/api_reply.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "launch/results/logprobs_json.h"

namespace moesaic {
namespace {

JsonWriter reply_of(const ReplyHead& head, std::string_view object) {
  return JsonWriter()
      .field("id", head.id)
      .field("object", object)
      .field("created", head.created)
      .field("model", head.model);
}

std::string_view chunk_object(ApiKind kind) {
  return kind == ApiKind::chat ? "chat.completion.chunk" : "text_completion";
}

std::string usage_json(const ReplyUsage& usage) {
  return JsonWriter()
      .field("prompt_tokens", usage.prompt_tokens)
      .field("completion_tokens", usage.completion_tokens)
      .field("total_tokens", usage.prompt_tokens + usage.completion_tokens)
      .text();
}

std::string finish_json(std::string_view reason) {
  return reason.empty() ? "null" : json_quote(reason);
}

/// A choice whose text stands under this name: as it is for completions, else in an object.
std::string choice_json(const ReplyChoice& choice, std::string_view name, std::string_view text) {
  return JsonWriter()
      .field("index", choice.index)
      .raw_field(name, text)
      .raw_field("logprobs", choice.logprobs.empty() ? "null" : choice.logprobs)
      .raw_field("finish_reason", finish_json(choice.finish_reason))
      .text();
}

std::string whole_choice(ApiKind kind, const ReplyChoice& choice) {
  if (kind == ApiKind::completion) return choice_json(choice, "text", json_quote(choice.text));
  const JsonWriter message = JsonWriter().field("role", "assistant").field("content", choice.text);
  return choice_json(choice, "message", message.text());
}

std::string chunk_of(const ReplyHead& head, std::string_view choices) {
  return reply_of(head, chunk_object(head.kind)).raw_field("choices", choices).text();
}

std::int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

}  // namespace

std::string reply_json(const ReplyHead& head, std::span<const ReplyChoice> choices,
                       const ReplyUsage& usage) {
  std::vector<std::string> all;
  for (const ReplyChoice& choice : choices) all.push_back(whole_choice(head.kind, choice));
  return reply_of(head, head.kind == ApiKind::chat ? "chat.completion" : "text_completion")
      .raw_field("choices", fmt::format("[{}]", fmt::join(all, ", ")))
      .raw_field("usage", usage_json(usage))
      .text();
}

std::string role_json(const ReplyHead& head, std::int64_t index) {
  const JsonWriter delta = JsonWriter().field("role", "assistant").field("content", "");
  return chunk_of(
      head, fmt::format("[{}]", choice_json({.index = index, .text = ""}, "delta", delta.text())));
}

std::string chunk_json(const ReplyHead& head, const ReplyChoice& choice) {
  if (head.kind == ApiKind::completion) {
    return chunk_of(head, fmt::format("[{}]", whole_choice(head.kind, choice)));
  }
  const JsonWriter delta =
      choice.text.empty() ? JsonWriter() : JsonWriter().field("content", choice.text);
  return chunk_of(head, fmt::format("[{}]", choice_json(choice, "delta", delta.text())));
}

std::string usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage) {
  return reply_of(head, chunk_object(head.kind))
      .raw_field("choices", "[]")
      .raw_field("usage", usage_json(usage))
      .text();
}

std::string_view finish_reason_text(StopReason reason) {
  return reason == StopReason::length ? "length" : "stop";
}

HttpResponse api_error(int status, std::string_view message) {
  const std::string_view type = status == 401   ? "authentication_error"
                                : status < 500  ? "invalid_request_error"
                                : status == 503 ? "unavailable_error"
                                                : "server_error";
  const JsonWriter error = JsonWriter()
                               .field("message", message)
                               .field("type", type)
                               .raw_field("param", "null")
                               .field("code", status);
  HttpResponse response = json_response(JsonWriter().raw_field("error", error.text()).text());
  response.status = status;
  if (status == 503) response.headers.emplace_back("Retry-After", "2");
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse json_response(std::string body) {
  return {.status = 200, .content_type = "application/json", .body = std::move(body)};
}

TextLogprobs::TextLogprobs(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                           std::string_view echo)
    : tokenizer_(tokenizer), decoder_(tokenizer, false) {
  if (echo.empty()) {
    for (const std::int32_t token : prompt) (void)decoder_.push(token);
  } else {  // the tokenizer may have put special tokens before the text
    offset_ = characters(echo) - characters(tokenizer.decode(prompt, false));
  }
}

void TextLogprobs::add_token(std::int32_t token, bool stands_in_text) {
  tokens_.push_back(json_quote(logprob_token_text(token, tokenizer_)));
  offsets_.push_back(std::max<std::int64_t>(offset_, 0));
  if (stands_in_text) offset_ += characters(decoder_.push(token));
}

void TextLogprobs::add_first(std::int32_t token) {
  add_token(token, true);
  logprobs_.emplace_back("null");
  top_.emplace_back("null");
}

void TextLogprobs::add_of_prompt(std::span<const TokenLogprob> logprobs) {
  add_token(logprobs.front().token, true);
  add_logprobs(logprobs);
}

void TextLogprobs::add(std::span<const TokenLogprob> logprobs) {
  add_token(logprobs.front().token, !tokenizer_.is_special(logprobs.front().token));
  add_logprobs(logprobs);
}

void TextLogprobs::add_logprobs(std::span<const TokenLogprob> logprobs) {
  // As among the likeliest ones: clients look whether both are equal.
  logprobs_.push_back(fmt::format("{}", static_cast<double>(logprobs.front().logprob)));
  JsonWriter top;
  std::vector<std::string> known;
  const auto add_top = [&](const TokenLogprob& one) {
    const std::string text = logprob_token_text(one.token, tokenizer_);
    // Of tokens that read alike the likelier one counts.
    if (std::ranges::find(known, text) != known.end()) return;
    top.field(text, static_cast<double>(one.logprob));
    known.push_back(text);
  };
  for (const TokenLogprob& one : logprobs.subspan(1)) add_top(one);
  if (logprobs.size() > 1) add_top(logprobs.front());
  top_.push_back(top.text());
}

std::string TextLogprobs::take_json() {
  const auto list = [](const auto& values) { return fmt::format("[{}]", fmt::join(values, ", ")); };
  std::string json = JsonWriter()
                         .raw_field("tokens", list(tokens_))
                         .raw_field("token_logprobs", list(logprobs_))
                         .raw_field("top_logprobs", list(top_))
                         .raw_field("text_offset", list(offsets_))
                         .text();
  tokens_.clear();
  logprobs_.clear();
  top_.clear();
  offsets_.clear();
  return json;
}

}  // namespace moesaic
