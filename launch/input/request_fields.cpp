#include "launch/input/request_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "launch/options/nearest_name.h"

namespace moesaic {
namespace {

constexpr std::int64_t kLineVersion = 1;
constexpr std::int64_t kMostSamples = 100'000;
constexpr double kMostBias = 1e9;
constexpr std::int64_t kMostOfAnything = 1'000'000'000'000;  // as of options
constexpr std::int64_t kMostLogprobs = 1000;                 // as of --logprobs

std::int32_t token_id(const Json& value) {
  return static_cast<std::int32_t>(value.as_int(0, std::numeric_limits<std::int32_t>::max()));
}

void read_prompt(const Json& value, RequestFields& fields) {
  if (value.is_string()) {
    fields.prompt = value.as_string();
    return;
  }
  require(value.is_array(), ErrorKind::file, "{}: neither a text nor a list of token ids",
          value.where());
  auto& tokens = fields.prompt_tokens.emplace();
  value.for_each([&](const std::string&, const Json& id) { tokens.push_back(token_id(id)); });
}

void read_version(const Json& value, RequestFields&) {
  const std::int64_t version = value.as_int();
  require(version == kLineVersion, ErrorKind::file, "{}: {}; this program reads version {}",
          value.where(), version, kLineVersion);
}

void read_stop(const Json& value, RequestFields& fields) {
  auto& strings = fields.stop.emplace();
  const auto add = [&](const Json& text) {
    strings.push_back(text.as_string());
    require(!strings.back().empty(), ErrorKind::file, "{}: an empty text would end every text",
            text.where());
  };
  if (value.is_string()) return add(value);
  require(value.is_array(), ErrorKind::file, "{}: neither a text nor a list of texts",
          value.where());
  value.for_each([&](const std::string&, const Json& text) { add(text); });
}

void read_logit_bias(const Json& value, RequestFields& fields) {
  require(value.is_object(), ErrorKind::file, "{}: no object of token ids and numbers",
          value.where());
  auto& biases = fields.logit_bias.emplace();
  value.for_each([&](const std::string& key, const Json& number) {
    LogitBias bias;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), bias.token);
    require(error == std::errc() && end == key.data() + key.size(), ErrorKind::file,
            "{}: \"{}\" is not a token id", value.where(), key);
    const double summand = number.as_double();
    require(std::abs(summand) <= kMostBias, ErrorKind::file, "{}: {} is not from {} to {}",
            number.where(), summand, -kMostBias, kMostBias);
    bias.bias = static_cast<float>(summand);
    biases.push_back(bias);
  });
}

struct Field {
  std::string_view name;
  void (*read)(const Json& value, RequestFields& fields);
};

/// A field that is a number as it stands; what it may be is checked with the rest of sampling.
template <std::optional<double> RequestFields::*kMember>
void read_number(const Json& value, RequestFields& fields) {
  fields.*kMember = value.as_double();
}

template <std::optional<std::int64_t> RequestFields::*kMember, std::int64_t kLeast,
          std::int64_t kMost = kMostOfAnything>
void read_whole_number(const Json& value, RequestFields& fields) {
  fields.*kMember = value.as_int(kLeast, kMost);
}

/// As `tokenize --chat` reads it from the same line.
void read_generation_prompt(const Json& value, RequestFields& /*fields*/) {
  require(value.as_bool(), ErrorKind::file, "{}: is false, but an answer follows: leave it out",
          value.where());
}

using F = RequestFields;

constexpr auto kSamplingFields = std::to_array<Field>({
    {"max_tokens", read_whole_number<&F::max_tokens, -1>},
    {"temperature", read_number<&F::temperature>},
    {"top_k", read_whole_number<&F::top_k, -1>},
    {"top_p", read_number<&F::top_p>},
    {"min_p", read_number<&F::min_p>},
    {"seed", read_whole_number<&F::seed, -1, std::numeric_limits<std::int64_t>::max()>},
    {"n", read_whole_number<&F::n, 1, kMostSamples>},
    {"stop", read_stop},
    {"logprobs", read_whole_number<&F::logprobs, 0, kMostLogprobs>},
    {"repetition_penalty", read_number<&F::repetition_penalty>},
    {"frequency_penalty", read_number<&F::frequency_penalty>},
    {"presence_penalty", read_number<&F::presence_penalty>},
    {"repeat_last_n", read_whole_number<&F::repeat_last_n, -1>},
    {"logit_bias", read_logit_bias},
    {"ignore_eos", [](const Json& value, RequestFields& f) { f.ignore_eos = value.as_bool(); }},
});

/// The others.
constexpr auto kLineFields = std::to_array<Field>({
    {"prompt", read_prompt},
    {"messages", [](const Json&, RequestFields&) {}},  // of the whole line: parse_request_fields
    {"tools", [](const Json&, RequestFields&) {}},
    {"chat_template_kwargs", [](const Json&, RequestFields&) {}},
    {"add_generation_prompt", read_generation_prompt},
    {"id", [](const Json& value, RequestFields& f) { f.id = id_text(value); }},
    {"version", read_version},
});

const Field* find_field(std::span<const Field> fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

const Field* find_field(std::string_view name) {
  const Field* const found = find_field(kSamplingFields, name);
  return found != nullptr ? found : find_field(kLineFields, name);
}

void refuse_unknown(const Json& line, const std::string& name) {
  std::vector<std::string_view> names;
  std::ranges::transform(kLineFields, std::back_inserter(names), &Field::name);
  std::ranges::transform(kSamplingFields, std::back_inserter(names), &Field::name);
  const std::string nearest = nearest_name(name, names);
  fail(ErrorKind::file, "{}: unknown field \"{}\"{}", line.where(), name,
       nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

}  // namespace

void require_known_fields(const Json& line) {
  line.for_each([&](const std::string& name, const Json&) {
    if (find_field(name) == nullptr) refuse_unknown(line, name);
  });
}

std::string id_text(const Json& value) {
  require(value.is_integer() || value.is_string(), ErrorKind::file,
          "{}: neither a text nor a whole number", value.where());
  return value.is_integer() ? fmt::format("{}", value.as_int()) : json_quote(value.as_string());
}

bool read_sampling_field(std::string_view name, const Json& value, RequestFields& fields) {
  const Field* const field = find_field(kSamplingFields, name);
  if (field != nullptr && !value.is_null()) field->read(value, fields);
  return field != nullptr;
}

RequestFields parse_request_fields(const Json& line) {
  require(line.is_object(), ErrorKind::file, "{}: no JSON object", line.where());
  RequestFields fields;
  line.for_each([&](const std::string& name, const Json& value) {
    const Field* const field = find_field(name);
    if (field == nullptr) refuse_unknown(line, name);
    if (!value.is_null()) field->read(value, fields);
  });
  if (line.contains("messages")) fields.conversation = line;
  for (const char* name : {"tools", "chat_template_kwargs", "add_generation_prompt"}) {
    require(fields.conversation || !line.contains(name), ErrorKind::file,
            "{}: \"{}\" go with \"messages\"", line.where(), name);
  }
  const int texts =
      (fields.prompt ? 1 : 0) + (fields.prompt_tokens ? 1 : 0) + (fields.conversation ? 1 : 0);
  require(texts == 1, ErrorKind::file, "{}: {}", line.where(),
          texts == 0 ? "neither \"prompt\" nor \"messages\"" : "both \"prompt\" and \"messages\"");
  return fields;
}

}  // namespace moesaic
