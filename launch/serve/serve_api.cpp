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
      preparer_(parts.tokenizer, parts.chat_template, parts.desk.most_waiting(), std::move(offer)),
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
  if (preparer_.offer().api_key.empty()) return true;
  const std::string_view given = request.authorization;
  return given.size() > kScheme.size() && is_same_name(given.substr(0, kScheme.size()), kScheme) &&
         is_same_secret(given.substr(kScheme.size()), preparer_.offer().api_key);
}

void ServeApi::refuse(const Answer& answer, HttpResponse response) {
  metrics_.add_refused();
  answer->send(std::move(response));
}

void ServeApi::handle(const HttpRequest& request, const Answer& answer) {
  const bool asks_of_model = request.path == "/v1/models/" + preparer_.offer().model;
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
  preparer_.open(context_tokens);
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
  model.field("id", preparer_.offer().model)
      .field("object", "model")
      .field("created", created_)
      .field("owned_by", "moesaic");
  if (is_open_) model.field("max_model_len", preparer_.offer().chats.context_tokens);
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
    reply.field("prompt", preparer_.chat_text(parse_api_chat(text)));
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
    if (!wanted.model.empty() && wanted.model != preparer_.offer().model) {
      return [this, answer, name = wanted.model] {
        refuse(answer, api_error(404, fmt::format("request: model: there is no \"{}\", but \"{}\"",
                                                  name, preparer_.offer().model)));
      };
    }
    const auto prepared = std::make_shared<PreparedCall>(preparer_.prepare(std::move(wanted)));
    return [this, answer, prepared] { begin(*prepared, answer); };
  });
}

ReplyHead ServeApi::new_head(ApiKind kind) {
  return {.kind = kind,
          .id = fmt::format("{}-{}{:06x}", kind == ApiKind::chat ? "chatcmpl" : "cmpl", salt_,
                            calls_++),
          .created = std::time(nullptr),
          .model = preparer_.offer().model};
}

void ServeApi::begin(PreparedCall& prepared, const Answer& answer) {
  if (!closed_.empty()) return refuse(answer, api_error(503, closed_));
  const ApiKind kind = prepared.request.chat ? ApiKind::chat : ApiKind::completion;
  const auto call =
      std::make_shared<ApiCall>(parts_.tokenizer, new_head(kind), prepared.request,
                                std::move(prepared.choices), prepared.prompt_tokens, answer);
  prepared.number(prompts_);
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
