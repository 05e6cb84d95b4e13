#include "launch/verbs/requests.h"

#include <algorithm>
#include <utility>

#include "launch/verbs/sampling_choice.h"

namespace moesaic {
namespace {

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

void RequestList::add(SampledRequest request) {
  const std::int64_t length = std::ssize(request.first.tokens);
  const std::int64_t new_tokens = request.first.max_new_tokens;
  first_.push_back(demand_.requests);
  demand_.requests += request.samples;
  demand_.longest_prompt = std::max(demand_.longest_prompt, length);
  demand_.longest_text = std::max(demand_.longest_text, length + new_tokens);
  demand_.most_new_tokens += request.samples * new_tokens;
  prompts_.push_back(std::move(request));
}

RequestList::Place RequestList::place(std::int64_t number) const {
  const auto prompt = std::ranges::upper_bound(first_, number) - first_.begin() - 1;
  const auto index = static_cast<std::size_t>(prompt);
  return {.prompt = index, .sample = number - first_[index], .samples = prompts_[index].samples};
}

Request RequestList::request(std::int64_t number) const {
  const Place at = place(number);
  return prompts_[at.prompt].sample(at.sample);
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

}  // namespace moesaic
