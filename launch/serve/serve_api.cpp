#include "launch/serve/serve_api.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <random>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Takes as long whatever the texts have in common.
bool is_same_secret(std::string_view given, std::string_view own) {
  unsigned difference = given.size() == own.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ own[i % own.size()]);
  }
  return difference == 0;
}

int status_of(ErrorKind kind) {
  return kind == ErrorKind::usage || kind == ErrorKind::file ? 400 : 500;
}

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

/// A text of a body.
std::string text_member(const Json& body, std::string_view name) {
  std::string text = body.at(name).as_string();
  require(!text.empty(), ErrorKind::usage, "{}: {}: the text is empty", body.where(), name);
  return text;
}

}  // namespace

ServeApi::ServeApi(const Parts& parts, ServeOffer offer)
    : parts_(parts),
      offer_(std::move(offer)),
      salt_(fmt::format("{:08x}", std::random_device()())),
      created_(std::time(nullptr)) {}

std::span<const ServeApi::Route> ServeApi::routes() {
  static constexpr auto kRoutes = std::to_array<Route>({
      {"GET", "/health", &ServeApi::tell_health, true},
      {"GET", "/v1/models", &ServeApi::tell_models},
      {"POST", "/v1/completions", &ServeApi::complete},
      {"POST", "/v1/chat/completions", &ServeApi::chat},
      {"GET", "/metrics", &ServeApi::tell_metrics},
      {"POST", "/tokenize", &ServeApi::tokenize},
      {"POST", "/detokenize", &ServeApi::detokenize},
      {"POST", "/apply-template", &ServeApi::apply_template},
  });
  return kRoutes;
}

bool ServeApi::is_let_in(const HttpRequest& request) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (offer_.api_key.empty()) return true;
  const std::string_view given = request.authorization;
  return given.starts_with(kScheme) && is_same_secret(given.substr(kScheme.size()), offer_.api_key);
}

void ServeApi::refuse(const Answer& answer, HttpResponse response) {
  metrics_.add_refused();
  answer->send(std::move(response));
}

void ServeApi::handle(const HttpRequest& request, const Answer& answer) {
  const auto route = std::ranges::find(routes(), request.path, &Route::path);
  if (route == routes().end()) {
    return refuse(answer, api_error(404, fmt::format("there is no {} here", request.path)));
  }
  if (route->method != request.method) {
    HttpResponse response = api_error(
        405, fmt::format("{} takes {}, not {}", route->path, route->method, request.method));
    response.headers.emplace_back("Allow", route->method);
    return refuse(answer, std::move(response));
  }
  if (!route->is_public && !is_let_in(request)) {
    return refuse(answer, api_error(401, "no valid key in the header Authorization: Bearer KEY"));
  }
  try {
    (this->*route->answer)(request, answer);
  } catch (...) {
    const Error error = current_error();
    refuse(answer, api_error(status_of(error.kind()), error.what()));
  }
}

void ServeApi::open(std::int64_t context_tokens) {
  offer_.completions.context_tokens = offer_.chats.context_tokens = context_tokens;
  is_open_ = true;
}

void ServeApi::close(std::string_view why) {
  closed_ = why;
  while (!places_.empty()) {
    const std::shared_ptr<ApiCall> call = places_.begin()->second.call;
    drop(*call);
    call->fail(503, why);
  }
}

void ServeApi::tell_health(const HttpRequest& /*request*/, const Answer& answer) {
  if (!closed_.empty()) return answer->send(api_error(503, closed_));
  if (!is_open_) return answer->send(api_error(503, "the model is loading"));
  answer->send(json_response(JsonWriter().field("status", "ok").text()));
}

void ServeApi::tell_models(const HttpRequest& /*request*/, const Answer& answer) {
  JsonWriter model;
  model.field("id", offer_.model)
      .field("object", "model")
      .field("created", created_)
      .field("owned_by", "moesaic");
  if (is_open_) model.field("max_model_len", offer_.chats.context_tokens);
  answer->send(json_response(JsonWriter()
                                 .field("object", "list")
                                 .raw_field("data", fmt::format("[{}]", model.text()))
                                 .text()));
}

void ServeApi::tell_metrics(const HttpRequest& /*request*/, const Answer& answer) {
  const std::int64_t waiting = parts_.desk.waiting();
  answer->send({.status = 200,
                .content_type = "text/plain; version=0.0.4; charset=utf-8",
                .body = metrics_.text({.running = std::ssize(places_) - waiting,
                                       .waiting = waiting,
                                       .uptime_seconds = seconds_since(start_)})});
}

void ServeApi::tokenize(const HttpRequest& request, const Answer& answer) {
  const Json body = parse_api_body(request.body);
  const auto special = body.find("add_special");
  const std::vector<std::int32_t> tokens =
      parts_.tokenizer.encode(text_member(body, "content"), !special || special->as_bool());
  answer->send(json_response(
      JsonWriter().raw_field("tokens", fmt::format("[{}]", fmt::join(tokens, ", "))).text()));
}

void ServeApi::detokenize(const HttpRequest& request, const Answer& answer) {
  std::vector<std::int32_t> tokens;
  parse_api_body(request.body).at("tokens").for_each([&](const std::string&, const Json& id) {
    tokens.push_back(
        static_cast<std::int32_t>(id.as_int(0, std::numeric_limits<std::int32_t>::max())));
  });
  answer->send(
      json_response(JsonWriter().field("content", parts_.tokenizer.decode(tokens, false)).text()));
}

void ServeApi::apply_template(const HttpRequest& request, const Answer& answer) {
  answer->send(
      json_response(JsonWriter().field("prompt", chat_text(parse_api_chat(request.body))).text()));
}

void ServeApi::complete(const HttpRequest& request, const Answer& answer) {
  call(ApiKind::completion, request, answer);
}

void ServeApi::chat(const HttpRequest& request, const Answer& answer) {
  call(ApiKind::chat, request, answer);
}

void ServeApi::call(ApiKind kind, const HttpRequest& request, const Answer& answer) {
  if (!closed_.empty()) return refuse(answer, api_error(503, closed_));
  if (!is_open_) return refuse(answer, api_error(503, "the model is loading"));
  const ApiRequest wanted = parse_api_request(kind, request.body);
  if (!wanted.model.empty() && wanted.model != offer_.model) {
    return refuse(answer,
                  api_error(404, fmt::format("request: model: there is no \"{}\", but \"{}\"",
                                             wanted.model, offer_.model)));
  }
  begin(wanted, orders_of(wanted), answer);
}

std::string ServeApi::chat_text(Chat chat) const {
  require(parts_.chat_template != nullptr, ErrorKind::usage,
          "the model has no chat template: start the server with --chat-template FILE");
  Conversation conversation(std::move(chat));
  conversation.add_defaults(offer_.conversations);
  return parts_.chat_template->render(conversation.chat()).text;
}

std::vector<std::vector<std::int32_t>> ServeApi::prompts_of(const ApiRequest& request) const {
  std::vector<std::vector<std::int32_t>> prompts;
  if (request.chat) prompts.push_back(parts_.tokenizer.encode(chat_text(*request.chat), false));
  for (const ApiPrompt& prompt : request.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    prompts.push_back(text != nullptr ? parts_.tokenizer.encode(*text)
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

ServeApi::Orders ServeApi::orders_of(const ApiRequest& request) {
  const RequestDefaults& defaults = request.chat ? offer_.chats : offer_.completions;
  const bool wants_prompt_logprobs = request.echo && request.fields.logprobs;
  require(!wants_prompt_logprobs || !request.stream, ErrorKind::usage,
          "request: echo: log-probabilities of a prompt do not come in a stream");
  const std::int64_t texts =
      std::max<std::int64_t>(std::ssize(request.prompts), 1) * request.fields.n.value_or(1);
  require(texts <= parts_.desk.most_waiting(), ErrorKind::usage,
          "request: {} texts, of which at most {} may wait", texts, parts_.desk.most_waiting());
  Orders all;
  for (std::vector<std::int32_t>& tokens : prompts_of(request)) {
    const std::int64_t count = std::ssize(tokens);
    const SampledRequest made = make_request(request.fields, tokens, prompts_++, defaults);
    const std::int64_t length = count + made.first.max_new_tokens;
    require(length <= defaults.context_tokens, ErrorKind::usage,
            "request: {} tokens of the prompt + {} new ones exceed the context of {}", count,
            made.first.max_new_tokens, defaults.context_tokens);
    all.prompt_tokens += count;
    for (std::int64_t sample = 0; sample < made.samples; ++sample) {
      RequestDesk::Order& order = all.orders.emplace_back();
      order = {.ticket = next_ticket_++, .request = made.sample(sample)};
      if (wants_prompt_logprobs) order.request.logits_from = 0;
      if (request.chat) order.request.group = conversation_of(*request.chat);
      ApiCall::Choice& choice = all.choices.emplace_back();
      choice.ticket = order.ticket;
      if (wants_prompt_logprobs) choice.prompt = tokens;
      if (request.echo) choice.echo = parts_.tokenizer.decode(tokens);
    }
  }
  return all;
}

ReplyHead ServeApi::new_head(ApiKind kind) {
  return {.kind = kind,
          .id = fmt::format("{}-{}{:06x}", kind == ApiKind::chat ? "chatcmpl" : "cmpl", salt_,
                            calls_++),
          .created = std::time(nullptr),
          .model = offer_.model};
}

void ServeApi::begin(const ApiRequest& request, Orders orders, const Answer& answer) {
  if (!parts_.desk.add(std::move(orders.orders))) {
    return refuse(answer, api_error(503, "too many texts wait already; try again later"));
  }
  metrics_.add_prompt(orders.prompt_tokens);
  const auto call = std::make_shared<ApiCall>(
      parts_.tokenizer, new_head(request.chat ? ApiKind::chat : ApiKind::completion), request,
      std::move(orders.choices), orders.prompt_tokens, answer);
  const Clock::time_point start = Clock::now();
  for (std::size_t i = 0; i < call->choices().size(); ++i) {
    places_.emplace(call->choices()[i].ticket, Place{.call = call, .choice = i, .start = start});
  }
  answer->on_gone([this, weak = std::weak_ptr(call)] {
    if (const auto gone = weak.lock()) drop(*gone);
  });
}

void ServeApi::drop(const ApiCall& call) {
  for (const ApiCall::Choice& choice : call.choices()) {
    if (places_.erase(choice.ticket) == 0) continue;
    parts_.desk.withdraw(choice.ticket);
    metrics_.add_abort();
  }
}

void ServeApi::take(Ticket ticket, const NewToken& token) {
  const auto found = places_.find(ticket);
  if (found == places_.end()) return;
  Place& place = found->second;
  if (!place.has_begun) metrics_.add_first_token(seconds_since(place.start));
  place.has_begun = true;
  metrics_.add_token();
  place.call->take(place.choice, token);
}

void ServeApi::take(Ticket ticket, const PromptLogprob& logprob) {
  const auto found = places_.find(ticket);
  if (found != places_.end()) found->second.call->take(found->second.choice, logprob);
}

void ServeApi::fail(Ticket ticket, std::string_view why) {
  const auto found = places_.find(ticket);
  if (found == places_.end()) return;
  const std::shared_ptr<ApiCall> call = found->second.call;
  drop(*call);
  call->fail(500, why);
}

void ServeApi::take(Ticket ticket, const Finished& finished) {
  const auto found = places_.find(ticket);
  if (found == places_.end()) return;
  if (finished.damage) {
    return fail(ticket, fmt::format("{} gives values that are not finite at position {}",
                                    finished.damage->place, finished.damage->position));
  }
  const Place place = found->second;
  places_.erase(found);
  metrics_.add_finished(finish_reason_text(finished.reason), seconds_since(place.start));
  place.call->take(place.choice, finished);
}

}  // namespace moesaic
