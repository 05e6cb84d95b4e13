#include "launch/serve/serve_api.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <exception>
#include <initializer_list>
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

/// Names of schemes have no case.
bool is_same_name(std::string_view given, std::string_view own) {
  return std::ranges::equal(given, own, [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  });
}

constexpr std::string_view kModelPath = "/v1/models/MODEL";

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

/// Throws Error{usage} for a field of another name.
void require_fields(const Json& body, std::initializer_list<std::string_view> names) {
  body.for_each([&](const std::string& name, const Json& value) {
    require(std::ranges::find(names, name) != names.end(), ErrorKind::usage, "{}: unknown field",
            value.where());
  });
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
      {"GET", kModelPath, &ServeApi::tell_model},
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
  return given.size() > kScheme.size() && is_same_name(given.substr(0, kScheme.size()), kScheme) &&
         is_same_secret(given.substr(kScheme.size()), offer_.api_key);
}

void ServeApi::refuse(const Answer& answer, HttpResponse response) {
  metrics_.add_refused();
  answer->send(std::move(response));
}

void ServeApi::handle(const HttpRequest& request, const Answer& answer) {
  const bool asks_of_model = request.path == "/v1/models/" + offer_.model;
  const std::string_view path = asks_of_model ? kModelPath : request.path;
  const auto route = std::ranges::find(routes(), path, &Route::path);
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

void ServeApi::open(std::int64_t context_tokens, std::int64_t texts_at_once) {
  texts_at_once_ = texts_at_once;
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

std::string ServeApi::model_json() const {
  JsonWriter model;
  model.field("id", offer_.model)
      .field("object", "model")
      .field("created", created_)
      .field("owned_by", "moesaic");
  if (is_open_) model.field("max_model_len", offer_.chats.context_tokens);
  return model.text();
}

void ServeApi::tell_model(const HttpRequest& /*request*/, const Answer& answer) {
  answer->send(json_response(model_json()));
}

void ServeApi::tell_models(const HttpRequest& /*request*/, const Answer& answer) {
  answer->send(json_response(JsonWriter()
                                 .field("object", "list")
                                 .raw_field("data", fmt::format("[{}]", model_json()))
                                 .text()));
}

void ServeApi::tell_metrics(const HttpRequest& /*request*/, const Answer& answer) {
  // The engine has taken as many that wait as it has places.
  const std::int64_t running =
      std::min(std::ssize(places_) - parts_.desk.waiting(), texts_at_once_);
  answer->send({.status = 200,
                .content_type = "text/plain; version=0.0.4; charset=utf-8",
                .body = metrics_.text({.running = running,
                                       .waiting = std::ssize(places_) - running,
                                       .uptime_seconds = seconds_since(start_)})});
}

void ServeApi::answer_aside(const Answer& answer, std::function<std::function<void()>()> prepare) {
  const auto finish = [this, answer](const std::function<void()>& last) {
    try {
      last();
    } catch (...) {
      const Error error = current_error();
      refuse(answer, api_error(status_of(error.kind()), error.what()));
    }
  };
  parts_.post_aside([this, prepare = std::move(prepare), finish] {
    std::function<void()> last;
    try {
      last = prepare();
    } catch (...) {
      last = [error = std::current_exception()] { std::rethrow_exception(error); };
    }
    parts_.post([last = std::move(last), finish] { finish(last); });
  });
}

void ServeApi::tokenize(const HttpRequest& request, const Answer& answer) {
  answer_aside(answer, [this, answer, text = request.body] {
    const Json body = parse_api_body(text);
    require_fields(body, {"content", "add_special"});
    const auto special = body.find("add_special");
    const std::vector<std::int32_t> tokens =
        parts_.tokenizer.encode(text_member(body, "content"), !special || special->as_bool());
    JsonWriter reply;
    reply.raw_field("tokens", fmt::format("[{}]", fmt::join(tokens, ", ")));
    return [answer, reply = reply.text()] { answer->send(json_response(reply)); };
  });
}

void ServeApi::detokenize(const HttpRequest& request, const Answer& answer) {
  answer_aside(answer, [this, answer, text = request.body] {
    const Json body = parse_api_body(text);
    require_fields(body, {"tokens"});
    const Json list = body.at("tokens");
    require(list.is_array(), ErrorKind::usage, "{}: no list of token ids", list.where());
    std::vector<std::int32_t> tokens;
    list.for_each([&](const std::string&, const Json& id) {
      tokens.push_back(static_cast<std::int32_t>(id.as_int(0, parts_.tokenizer.vocab_size() - 1)));
    });
    JsonWriter reply;
    reply.field("content", parts_.tokenizer.decode(tokens, false));
    return [answer, reply = reply.text()] { answer->send(json_response(reply)); };
  });
}

void ServeApi::apply_template(const HttpRequest& request, const Answer& answer) {
  answer_aside(answer, [this, answer, text = request.body] {
    JsonWriter reply;
    reply.field("prompt", chat_text(parse_api_chat(text)));
    return [answer, reply = reply.text()] { answer->send(json_response(reply)); };
  });
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
  answer_aside(answer, [this, kind, answer, body = request.body]() -> std::function<void()> {
    ApiRequest wanted = parse_api_request(kind, body);
    if (!wanted.model.empty() && wanted.model != offer_.model) {
      return [this, answer, name = wanted.model] {
        refuse(answer, api_error(404, fmt::format("request: model: there is no \"{}\", but \"{}\"",
                                                  name, offer_.model)));
      };
    }
    const auto prepared = std::make_shared<Prepared>(prepare(std::move(wanted)));
    return [this, answer, prepared] { begin(*prepared, answer); };
  });
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

/// The prompt as the text begins with it.
std::string ServeApi::echo_of(const ApiRequest& request, std::size_t index,
                              std::span<const std::int32_t> tokens) const {
  if (!request.echo) return "";
  const auto* const text = std::get_if<std::string>(&request.prompts[index]);
  return text != nullptr ? *text : parts_.tokenizer.decode(tokens, false);
}

void ServeApi::add_orders(std::int64_t index, std::vector<std::int32_t> tokens,
                          Prepared& prepared) {
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

ServeApi::Prepared ServeApi::prepare(ApiRequest request) {
  const std::int64_t texts =
      std::max<std::int64_t>(std::ssize(request.prompts), 1) * request.fields.n.value_or(1);
  require(texts <= parts_.desk.most_waiting(), ErrorKind::usage,
          "request: {} texts, of which at most {} may wait", texts, parts_.desk.most_waiting());
  require(!request.echo || !request.fields.logprobs || !request.stream, ErrorKind::usage,
          "request: echo: log-probabilities of a prompt do not come in a stream");
  Prepared prepared{.request = std::move(request)};
  for (std::vector<std::int32_t>& tokens : prompts_of(prepared.request)) {
    add_orders(prepared.prompts++, std::move(tokens), prepared);
  }
  check_answer(prepared.request, prepared.orders, prepared.choices);
  return prepared;
}

ReplyHead ServeApi::new_head(ApiKind kind) {
  return {.kind = kind,
          .id = fmt::format("{}-{}{:06x}", kind == ApiKind::chat ? "chatcmpl" : "cmpl", salt_,
                            calls_++),
          .created = std::time(nullptr),
          .model = offer_.model};
}

/// Prompts are numbered in the order in which their calls are taken, from 0 in each call so far.
void ServeApi::number(Prepared& prepared) const {
  const ApiRequest& request = prepared.request;
  std::optional<std::int64_t> conversation;
  if (request.chat) conversation = conversation_of(*request.chat);
  for (RequestDesk::Order& order : prepared.orders) {
    if (!request.fields.seed) order.request.stream += static_cast<std::uint64_t>(prompts_);
    if (order.request.group) *order.request.group += prompts_;
    if (conversation) order.request.group = conversation;
  }
}

void ServeApi::begin(Prepared& prepared, const Answer& answer) {
  if (!closed_.empty()) return refuse(answer, api_error(503, closed_));
  const ApiKind kind = prepared.request.chat ? ApiKind::chat : ApiKind::completion;
  const auto call =
      std::make_shared<ApiCall>(parts_.tokenizer, new_head(kind), prepared.request,
                                std::move(prepared.choices), prepared.prompt_tokens, answer);
  number(prepared);
  if (!parts_.desk.add(std::move(prepared.orders))) {
    return refuse(answer, api_error(503, "too many texts wait already; try again later"));
  }
  prompts_ += prepared.prompts;
  metrics_.add_prompt(prepared.prompt_tokens);
  const Clock::time_point start = Clock::now();
  for (std::size_t i = 0; i < call->choices().size(); ++i) {
    places_.emplace(call->choices()[i].ticket, Place{.call = call, .choice = i, .start = start});
  }
  answer->on_gone([this, weak = std::weak_ptr(call)] {
    if (const auto gone = weak.lock()) drop(*gone);
  });
  call->begin();
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
  place.call->take(place.choice, finished);
  places_.erase(ticket);
  metrics_.add_finished(finish_reason_text(finished.reason), seconds_since(place.start));
}

}  // namespace moesaic
