#include "launch/verbs/requests.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "launch/verbs/sampling_choice.h"

namespace moesaic {
namespace {

/// More need not be counted: no job ends with so many.
constexpr std::int64_t kMostTokens = 1'000'000'000'000'000'000;

SamplingOptions sampling_of(const RequestFields& fields, const SamplingOptions& otherwise) {
  return {.temperature = fields.temperature.value_or(otherwise.temperature),
          .top_k = fields.top_k.value_or(otherwise.top_k),
          .top_p = fields.top_p.value_or(otherwise.top_p),
          .min_p = fields.min_p.value_or(otherwise.min_p),
          .seed = fields.seed ? seed_of(*fields.seed) : otherwise.seed,
          .repetition_penalty = fields.repetition_penalty.value_or(otherwise.repetition_penalty),
          .frequency_penalty = fields.frequency_penalty.value_or(otherwise.frequency_penalty),
          .presence_penalty = fields.presence_penalty.value_or(otherwise.presence_penalty),
          .penalty_last_n = fields.repeat_last_n.value_or(otherwise.penalty_last_n),
          .logit_bias = fields.logit_bias.value_or(otherwise.logit_bias)};
}

}  // namespace

Request SampledRequest::sample(std::int64_t number) const {
  Request request = first;
  request.stream |= static_cast<std::uint64_t>(number) << 32U;
  return request;
}

SampledRequest make_request(const RequestFields& fields, std::vector<std::int32_t> tokens,
                            std::int64_t index, const RequestDefaults& defaults) {
  SampledRequest result;
  result.samples = fields.n.value_or(defaults.samples);
  Request& request = result.first;
  request.max_new_tokens = fields.max_tokens.value_or(defaults.max_tokens);
  if (request.max_new_tokens < 0) {
    request.max_new_tokens =
        std::max<std::int64_t>(defaults.context_tokens - std::ssize(tokens), 1);
  }
  request.tokens = std::move(tokens);
  request.sampling = sampling_of(fields, defaults.sampling);
  check_sampling(request.sampling, defaults.vocab_size);
  request.stream = fields.seed ? 0 : static_cast<std::uint64_t>(index);
  if (result.samples > 1) request.group = index;
  if (!fields.ignore_eos.value_or(defaults.ignore_eos)) request.stop_tokens = defaults.stop_tokens;
  request.stop_strings = fields.stop.value_or(defaults.stop);
  request.logprobs = fields.logprobs ? fields.logprobs : defaults.logprobs;
  return result;
}

void RequestList::add(
    const Prompt& prompt, std::vector<std::int32_t> tokens,
    const std::function<void(std::int64_t tokens, std::int64_t new_tokens)>& check) {
  SampledRequest made = [&] {
    try {
      return make_request(prompt.fields(), std::move(tokens), std::ssize(prompts_), defaults_);
    } catch (const Error& error) {
      fail(error.kind(), "{}: {}", prompt.where, error.what());
    }
  }();
  const std::int64_t length = std::ssize(made.first.tokens);
  const std::int64_t new_tokens = made.first.max_new_tokens;
  check(length, new_tokens);
  prompts_.push_back({.said = prompt.said,
                      .tokens = std::move(made.first.tokens),
                      .first = demand_.requests,
                      .samples = made.samples});
  demand_.requests += made.samples;
  demand_.most_samples = std::max(demand_.most_samples, made.samples);
  demand_.longest_prompt = std::max(demand_.longest_prompt, length);
  demand_.longest_text = std::max(demand_.longest_text, length + new_tokens);
  demand_.most_new_tokens =
      std::min(demand_.most_new_tokens + made.samples * new_tokens, kMostTokens);
}

void RequestList::add_bad() {
  prompts_.push_back({.said = nullptr, .tokens = {}, .first = demand_.requests, .samples = 1});
  ++demand_.requests;
}

RequestList::Place RequestList::place(std::int64_t number) const {
  const auto next = std::ranges::upper_bound(prompts_, number, {}, &Entry::first);
  const auto prompt = static_cast<std::size_t>(next - prompts_.begin() - 1);
  return {.prompt = prompt,
          .sample = number - prompts_[prompt].first,
          .samples = prompts_[prompt].samples};
}

Request RequestList::request(std::int64_t number) const {
  const Place at = place(number);
  const Entry& entry = prompts_[at.prompt];
  const auto index = static_cast<std::int64_t>(at.prompt);
  const RequestFields nothing;
  return make_request(entry.said ? *entry.said : nothing, entry.tokens, index, defaults_)
      .sample(at.sample);
}

}  // namespace moesaic
