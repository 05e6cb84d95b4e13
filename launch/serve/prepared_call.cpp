#include "launch/serve/prepared_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/checksum.h"
#include "base/error.h"

namespace moesaic {
namespace {

/// What all turns of a conversation have in common: the messages up to the first of a user.
std::int64_t conversation_of(const Chat& chat) {
  std::string beginning;
  for (const jinja::Value& message : chat.messages.sequence()->items) {
    const std::string& role = *message.dict()->find("role")->text();
    const jinja::Value* const content = message.dict()->find("content");
    beginning += role + '\n';
    if (content != nullptr && content->text() != nullptr) beginning += *content->text() + '\n';
    if (role == "user") break;
  }
  return static_cast<std::int64_t>(checksum(beginning));
}

/// One answer may not take the memory of all: throws Error{usage}.
void check_answer(const ApiRequest& request, std::span<const RequestDesk::Order> orders,
                  std::span<const ApiCall::Choice> choices) {
  constexpr std::int64_t kMostNumbers = 1'000'000;  // log-probabilities
  constexpr std::int64_t kMostEcho = std::int64_t{16} << 20U;
  std::int64_t numbers = 0;
  std::int64_t echo = 0;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const std::int64_t tokens =
        (request.echo ? std::ssize(choices[i].prompt) : 0) + orders[i].request.max_new_tokens;
    if (request.fields.logprobs) numbers += tokens * (*request.fields.logprobs + 1);
    echo += std::ssize(choices[i].echo);
  }
  require(numbers <= kMostNumbers, ErrorKind::usage,
          "request: logprobs: up to {} of them, of which an answer has at most {}: ask for fewer, "
          "or for fewer tokens (max_tokens)",
          numbers, kMostNumbers);
  require(echo <= kMostEcho, ErrorKind::usage, "request: echo: {} bytes of prompts; at most {}",
          echo, kMostEcho);
}

}  // namespace

void PreparedCall::number(std::int64_t first) {
  std::optional<std::int64_t> conversation;
  if (request.chat) conversation = conversation_of(*request.chat);
  for (RequestDesk::Order& order : orders) {
    if (!request.fields.seed) order.request.stream += static_cast<std::uint64_t>(first);
    if (order.request.group) *order.request.group += first;
    if (conversation) order.request.group = conversation;
  }
}

CallPreparer::CallPreparer(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                           std::int64_t most_texts, ServeOffer offer)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      most_texts_(most_texts),
      offer_(std::move(offer)) {}

void CallPreparer::open(std::int64_t context_tokens) {
  offer_.completions.context_tokens = offer_.chats.context_tokens = context_tokens;
}

std::string CallPreparer::chat_text(Chat chat) const {
  require(chat_template_ != nullptr, ErrorKind::usage,
          "the model has no chat template: start the server with --chat-template FILE");
  Conversation conversation(std::move(chat));
  conversation.add_defaults(offer_.conversations);
  return chat_template_->render(conversation.chat()).text;
}

std::vector<std::vector<std::int32_t>> CallPreparer::prompts_of(const ApiRequest& request) const {
  std::vector<std::vector<std::int32_t>> prompts;
  if (request.chat) prompts.push_back(tokenizer_.encode(chat_text(*request.chat), false));
  for (const ApiPrompt& prompt : request.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    prompts.push_back(text != nullptr ? tokenizer_.encode(*text)
                                      : std::get<std::vector<std::int32_t>>(prompt));
  }
  for (const std::vector<std::int32_t>& prompt : prompts) {
    require(!prompt.empty(), ErrorKind::usage, "request: prompt: a text without tokens");
    for (const std::int32_t token : prompt) {
      require(token < offer_.vocab_size, ErrorKind::usage,
              "request: prompt: token {} is outside the model's vocabulary of {}", token,
              offer_.vocab_size);
    }
  }
  return prompts;
}

/// The prompt as the text begins with it.
std::string CallPreparer::echo_of(const ApiRequest& request, std::size_t index,
                                  std::span<const std::int32_t> tokens) const {
  if (!request.echo) return "";
  const auto* const text = std::get_if<std::string>(&request.prompts[index]);
  return text != nullptr ? *text : tokenizer_.decode(tokens, false);
}

void CallPreparer::add_orders(std::int64_t index, std::vector<std::int32_t> tokens,
                              PreparedCall& prepared) {
  const ApiRequest& request = prepared.request;
  const RequestDefaults& defaults = request.chat ? offer_.chats : offer_.completions;
  const bool wants_prompt_logprobs = request.echo && request.fields.logprobs;
  const std::int64_t count = std::ssize(tokens);
  const std::string echo = echo_of(request, static_cast<std::size_t>(index), tokens);
  const SampledRequest made = make_request(request.fields, std::move(tokens), index, defaults);
  const std::int64_t new_tokens = made.first.max_new_tokens;
  require(count + new_tokens <= defaults.context_tokens, ErrorKind::usage,
          "request: {} tokens of the prompt + {} new ones exceed the context of {}", count,
          new_tokens, defaults.context_tokens);
  prepared.prompt_tokens += count;
  for (std::int64_t sample = 0; sample < made.samples; ++sample) {
    RequestDesk::Order& order = prepared.orders.emplace_back();
    order = {.ticket = next_ticket_++, .request = made.sample(sample)};
    if (wants_prompt_logprobs) order.request.logits_from = 0;
    ApiCall::Choice& choice = prepared.choices.emplace_back();
    choice.ticket = order.ticket;
    choice.echo = echo;
    if (request.fields.logprobs && !request.chat) choice.prompt = order.request.tokens;
  }
}

PreparedCall CallPreparer::prepare(ApiRequest request) {
  const std::int64_t texts =
      std::max<std::int64_t>(std::ssize(request.prompts), 1) * request.fields.n.value_or(1);
  require(texts <= most_texts_, ErrorKind::usage, "request: {} texts, of which at most {} may wait",
          texts, most_texts_);
  require(!request.echo || !request.fields.logprobs || !request.stream, ErrorKind::usage,
          "request: echo: log-probabilities of a prompt do not come in a stream");
  PreparedCall prepared{.request = std::move(request)};
  for (std::vector<std::int32_t>& tokens : prompts_of(prepared.request)) {
    add_orders(prepared.prompts++, std::move(tokens), prepared);
  }
  check_answer(prepared.request, prepared.orders, prepared.choices);
  return prepared;
}

}  // namespace moesaic
