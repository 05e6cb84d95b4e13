#include "launch/serve/api_request.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "src/jinja/template.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMostChoices = 128;   // of a prompt, as in OpenAI's
constexpr std::int64_t kMostPrompts = 2048;  // of a call, the same
constexpr std::int64_t kMostLogprobs = 20;   // the likeliest tokens, the same
constexpr std::int64_t kMostStops = 64;
constexpr std::size_t kMostStopBytes = 1024;  // of each
constexpr std::int64_t kMostBiases = 1024;

/// A field, and how it is read; those of sampling are not among them (read_sampling_field).
struct ApiField {
  std::string_view name;
  void (*read)(const Json& value, ApiRequest& request);
};

void ignore(const Json& /*value*/, ApiRequest& /*request*/) {}

template <bool ApiRequest::*kMember>
void read_switch(const Json& value, ApiRequest& request) {
  request.*kMember = value.as_bool();
}

/// What is fine where it says what is done anyway.
void require_value(const Json& value, bool is_it, std::string_view only) {
  require(is_it, ErrorKind::usage, "{}: only {} is there", value.where(), only);
}

void read_model(const Json& value, ApiRequest& request) {
  request.model = value.as_string();
}

void read_stream_options(const Json& value, ApiRequest& request) {
  require(value.is_object(), ErrorKind::usage, "{}: no object", value.where());
  value.for_each([&](const std::string& name, const Json& member) {
    if (name == "include_usage") {
      request.include_usage = !member.is_null() && member.as_bool();
    } else {
      require(name == "include_obfuscation", ErrorKind::usage, "{}: unknown field", member.where());
    }
  });
}

std::vector<std::int32_t> read_tokens(const Json& list) {
  std::vector<std::int32_t> tokens;
  list.for_each([&](const std::string&, const Json& id) {
    tokens.push_back(
        static_cast<std::int32_t>(id.as_int(0, std::numeric_limits<std::int32_t>::max())));
  });
  require(!tokens.empty(), ErrorKind::usage, "{}: a prompt without tokens", list.where());
  return tokens;
}

/// A text, texts, token ids, or several lists of these.
void read_prompts(const Json& value, ApiRequest& request) {
  const auto add = [&](const Json& prompt) {
    require(prompt.is_string() || prompt.is_array(), ErrorKind::usage,
            "{}: neither a text nor a list of token ids", prompt.where());
    if (prompt.is_string()) {
      request.prompts.emplace_back(prompt.as_string());
    } else {
      request.prompts.emplace_back(read_tokens(prompt));
    }
  };
  const bool is_list = value.is_array() && value.size() > 0 && !value.at(0).is_number();
  if (!is_list) return add(value);
  require(value.size() <= kMostPrompts, ErrorKind::usage, "{}: more than {} prompts", value.where(),
          kMostPrompts);
  value.for_each([&](const std::string&, const Json& prompt) { add(prompt); });
}

void read_chat_logprobs(const Json& value, ApiRequest& request) {
  if (value.as_bool() && !request.fields.logprobs) request.fields.logprobs = 0;
}

/// Its name stands behind that of "logprobs" in the table of fields, not in bodies.
void read_top_logprobs(const Json& value, ApiRequest& request) {
  request.fields.logprobs = value.as_int(0, kMostLogprobs);
}

void read_max_completion_tokens(const Json& value, ApiRequest& request) {
  request.fields.max_tokens = value.as_int(1, std::numeric_limits<std::int32_t>::max());
}

void read_response_format(const Json& value, ApiRequest& /*request*/) {
  require(value.is_object(), ErrorKind::usage, "{}: no object", value.where());
  const Json type = value.at("type");
  require_value(type, type.as_string() == "text", "\"text\"");
}

void read_tool_choice(const Json& value, ApiRequest& /*request*/) {
  require_value(value,
                value.is_string() && (value.as_string() == "auto" || value.as_string() == "none"),
                "\"auto\" and \"none\"");
}

constexpr auto kCommonFields = std::to_array<ApiField>({
    {"model", read_model},
    {"stream", read_switch<&ApiRequest::stream>},
    {"stream_options", read_stream_options},
    {"user", ignore},
    {"metadata", ignore},
    {"store", ignore},
    {"service_tier", ignore},
    {"safety_identifier", ignore},
    {"prompt_cache_key", ignore},
});

constexpr auto kCompletionFields = std::to_array<ApiField>({
    {"prompt", read_prompts},
    {"echo", read_switch<&ApiRequest::echo>},
    {"best_of",
     [](const Json& value, ApiRequest&) { require_value(value, value.as_int() == 1, "1"); }},
    {"suffix", [](const Json& value,
                  ApiRequest&) { require_value(value, value.as_string().empty(), "\"\""); }},
});

constexpr auto kChatFields = std::to_array<ApiField>({
    {"messages", ignore},  // of the whole body: chat_of
    {"tools", ignore},
    {"chat_template_kwargs", ignore},
    {"reasoning_effort", ignore},
    {"tool_choice", read_tool_choice},
    {"parallel_tool_calls", ignore},  // calls of tools stand in the text
    {"max_completion_tokens", read_max_completion_tokens},
    {"logprobs", read_chat_logprobs},
    {"top_logprobs", read_top_logprobs},
    {"response_format", read_response_format},
    {"add_generation_prompt",
     [](const Json& value, ApiRequest&) { require_value(value, value.as_bool(), "true"); }},
});

bool read_field(std::span<const ApiField> fields, const std::string& name, const Json& value,
                ApiRequest& request) {
  const auto found = std::ranges::find(fields, name, &ApiField::name);
  if (found == fields.end()) return false;
  if (!value.is_null()) found->read(value, request);
  return true;
}

/// The texts of a message's parts as one.
jinja::Value joined(const jinja::Sequence& parts, const std::string& where) {
  std::string text;
  for (const jinja::Value& part : parts.items) {
    const jinja::Value* const type = part.dict() != nullptr ? part.dict()->find("type") : nullptr;
    const jinja::Value* const own = part.dict() != nullptr ? part.dict()->find("text") : nullptr;
    const bool is_text = type != nullptr && type->text() != nullptr && *type->text() == "text" &&
                         own != nullptr && own->text() != nullptr;
    require(is_text, ErrorKind::usage, "{}: a part of its content is no text", where);
    if (&part != &parts.items.front()) text += '\n';
    text += *own->text();
  }
  return jinja::Value(std::move(text));
}

/// OpenAI's calls have the arguments of a function as a text of JSON, templates as an object.
jinja::Value with_arguments(const jinja::Value& value) {
  if (value.text() != nullptr) {
    try {
      const Json parsed = Json::parse(*value.text(), "arguments");
      return parsed.is_object() ? jinja::value_of(parsed) : value;
    } catch (const Error&) {
      return value;  // some text: the template may know what it is
    }
  }
  if (value.sequence() != nullptr) {
    std::vector<jinja::Value> items;
    std::ranges::transform(value.sequence()->items, std::back_inserter(items), with_arguments);
    return jinja::make_sequence(std::move(items));
  }
  if (value.dict() == nullptr) return value;
  jinja::Dict call;
  for (const auto& [key, member] : value.dict()->entries()) {
    const std::string_view name = key.text() != nullptr ? std::string_view(*key.text()) : "";
    const bool has_them = name == "function" || name == "arguments";
    call.set(key, has_them ? with_arguments(member) : member);
  }
  return jinja::make_dict(std::move(call));
}

jinja::Value plain_message(const jinja::Value& message, std::size_t index) {
  const std::string where = fmt::format("messages[{}]", index);
  const jinja::Value* const role = message.dict()->find("role");
  require(role != nullptr && role->is_text(), ErrorKind::usage, "{}: no role", where);
  jinja::Dict plain;
  for (const auto& [key, value] : message.dict()->entries()) {
    const std::string_view name = key.text() != nullptr ? std::string_view(*key.text()) : "";
    if (name == "content" && value.sequence() != nullptr) {
      plain.set(key, joined(*value.sequence(), where));
    } else {
      plain.set(key, name == "tool_calls" ? with_arguments(value) : value);
    }
  }
  return jinja::make_dict(std::move(plain));
}

Chat chat_of(const Json& body) {
  std::vector<jinja::Value> messages = read_messages(body.at("messages"));
  for (std::size_t i = 0; i < messages.size(); ++i) messages[i] = plain_message(messages[i], i);
  Chat chat = read_chat(body, std::move(messages));
  chat.add_generation_prompt = true;
  if (const auto choice = body.find("tool_choice"); choice && choice->as_string_view() == "none") {
    chat.tools = jinja::Value();
  }
  if (const auto effort = body.find("reasoning_effort")) {
    jinja::Dict variables;
    variables.set(jinja::Value("reasoning_effort"), jinja::Value(effort->as_string()));
    add_variables(chat, variables);
  }
  return chat;
}

/// What readers of files throw is the request's fault here.
template <typename Read>
auto as_usage(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    fail(error.kind() == ErrorKind::file ? ErrorKind::usage : error.kind(), "{}", error.what());
  }
}

/// What one client may ask of all.
void check_limits(const RequestFields& fields, const std::string& where) {
  require(fields.n.value_or(1) <= kMostChoices, ErrorKind::usage, "{}: n: more than {}", where,
          kMostChoices);
  require(fields.logprobs.value_or(0) <= kMostLogprobs, ErrorKind::usage,
          "{}: logprobs: more than {}", where, kMostLogprobs);
  require(!fields.logit_bias || std::ssize(*fields.logit_bias) <= kMostBiases, ErrorKind::usage,
          "{}: logit_bias: more than {} tokens", where, kMostBiases);
  if (!fields.stop) return;
  require(std::ssize(*fields.stop) <= kMostStops, ErrorKind::usage, "{}: stop: more than {} texts",
          where, kMostStops);
  for (const std::string& text : *fields.stop) {
    require(text.size() <= kMostStopBytes, ErrorKind::usage,
            "{}: stop: a text of more than {} bytes", where, kMostStopBytes);
  }
}

ApiRequest read_request(ApiKind kind, const Json& body) {
  ApiRequest request{.kind = kind};
  const std::span<const ApiField> own = kind == ApiKind::chat
                                            ? std::span<const ApiField>(kChatFields)
                                            : std::span<const ApiField>(kCompletionFields);
  body.for_each([&](const std::string& name, const Json& value) {
    const bool is_known = read_field(kCommonFields, name, value, request) ||
                          read_field(own, name, value, request) ||
                          read_sampling_field(name, value, request.fields);
    require(is_known, ErrorKind::usage, "{}: unknown field", value.where());
  });
  const RequestFields& fields = request.fields;
  check_limits(fields, body.where());
  require(fields.max_tokens.value_or(1) != 0 || request.echo, ErrorKind::usage,
          "{}: max_tokens: 0 tokens are no text", body.where());
  if (kind == ApiKind::completion) {
    require(!request.prompts.empty(), ErrorKind::usage, "{}: no \"prompt\"", body.where());
    return request;
  }
  require(!body.contains("max_tokens") || !body.contains("max_completion_tokens"), ErrorKind::usage,
          "{}: both max_tokens and max_completion_tokens", body.where());
  const auto wants = body.find("logprobs");
  require(!body.contains("top_logprobs") || (wants && wants->as_bool()), ErrorKind::usage,
          "{}: top_logprobs go with \"logprobs\": true", body.where());
  request.chat = chat_of(body);
  return request;
}

}  // namespace

Json parse_api_body(std::string_view body) {
  return as_usage([&] {
    Json json = Json::parse(body, "request");
    require(json.is_object(), ErrorKind::usage, "request: no JSON object");
    return json;
  });
}

ApiRequest parse_api_request(ApiKind kind, std::string_view body) {
  const Json json = parse_api_body(body);
  return as_usage([&] { return read_request(kind, json); });
}

Chat parse_api_chat(std::string_view body) {
  return *parse_api_request(ApiKind::chat, body).chat;
}

}  // namespace moesaic
