#include "launch/input/requests.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "launch/input/sampling_choice.h"

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
      return make_request(prompt.fields(), std::move(tokens), demand_.prompts, defaults_);
    } catch (const Error& error) {
      fail(error.kind(), "{}: {}", prompt.where, error.what());
    }
  }();
  const std::int64_t length = std::ssize(made.first.tokens);
  const std::int64_t new_tokens = made.first.max_new_tokens;
  check(length, new_tokens);
  add_entry({.prompt = prompt, .tokens = std::move(made.first.tokens), .samples = made.samples});
  demand_.most_samples = std::max(demand_.most_samples, made.samples);
  demand_.longest_prompt = std::max(demand_.longest_prompt, length);
  demand_.longest_text = std::max(demand_.longest_text, length + new_tokens);
  demand_.most_new_tokens =
      std::min(demand_.most_new_tokens + made.samples * new_tokens, kMostTokens);
}

void RequestList::add_bad(Prompt prompt) {
  bad_.add(*prompt.error);
  add_entry({.prompt = std::move(prompt), .tokens = {}});
}

void RequestList::add_entry(Entry entry) {
  entry.index = demand_.prompts++;
  entry.first = demand_.requests;
  entry.left = entry.samples;
  demand_.requests += entry.samples;
  prompts_.emplace_hint(prompts_.end(), entry.first, std::move(entry));
}

RequestList::Entries::const_iterator RequestList::find(std::int64_t number) const {
  const auto next = prompts_.upper_bound(number);
  if (next == prompts_.begin()) return prompts_.end();
  const auto found = std::prev(next);
  const bool has_it = number - found->first < found->second.samples;
  return has_it ? found : prompts_.end();
}

const RequestList::Entry& RequestList::entry(std::int64_t number) const {
  const auto found = find(number);
  require(found != prompts_.end(), ErrorKind::internal, "request {} is forgotten", number);
  return found->second;
}

RequestList::Place RequestList::place(std::int64_t number) const {
  const Entry& at = entry(number);
  return {.prompt = at.index, .sample = number - at.first, .samples = at.samples};
}

Request RequestList::request(std::int64_t number) const {
  const Entry& at = entry(number);
  return make_request(at.prompt.fields(), at.tokens, at.index, defaults_).sample(number - at.first);
}

void RequestList::forget(std::int64_t number) {
  const auto found = prompts_.find(entry(number).first);
  if (--found->second.left == 0) prompts_.erase(found);
}

}  // namespace moesaic
