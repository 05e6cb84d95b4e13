#include "tests/generate/sampling_case.h"

#include <gtest/gtest.h>

#include <string>

namespace moesaic {
namespace {

std::vector<float> read_floats(const Json& array) {
  std::vector<float> values;
  array.for_each([&](const std::string&, const Json& value) {
    values.push_back(static_cast<float>(value.as_double()));
  });
  return values;
}

void read_option(const std::string& name, const Json& value, SamplingOptions& options) {
  if (name == "temperature") {
    options.temperature = value.as_double();
  } else if (name == "top_k") {
    options.top_k = value.as_int();
  } else if (name == "top_p") {
    options.top_p = value.as_double();
  } else if (name == "min_p") {
    options.min_p = value.as_double();
  } else if (name == "repetition_penalty") {
    options.repetition_penalty = value.as_double();
  } else if (name == "frequency_penalty") {
    options.frequency_penalty = value.as_double();
  } else if (name == "presence_penalty") {
    options.presence_penalty = value.as_double();
  } else if (name == "logit_bias") {
    value.for_each([&](const std::string& token, const Json& bias) {
      options.logit_bias.push_back({std::stoi(token), static_cast<float>(bias.as_double())});
    });
  } else {
    ADD_FAILURE() << "unknown option " << name;
  }
}

}  // namespace

SamplingCase read_sampling_case(const Json& object) {
  SamplingCase golden;
  golden.options = {.temperature = 1, .top_k = 0, .top_p = 1};
  object.at("options").for_each([&](const std::string& name, const Json& value) {
    read_option(name, value, golden.options);
  });
  object.at("tokens").for_each([&](const std::string&, const Json& token) {
    golden.tokens.push_back(static_cast<std::int32_t>(token.as_int()));
  });
  golden.prompt_tokens = object.at("prompt_tokens").as_int();
  golden.logits = read_floats(object.at("logits"));
  golden.adjusted = read_floats(object.at("adjusted"));
  object.at("probabilities").for_each([&](const std::string&, const Json& value) {
    golden.probabilities.push_back(value.is_null() ? 0 : value.as_double());
  });
  return golden;
}

}  // namespace moesaic
