#include "src/generate/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moesaic {

void find_likeliest(std::span<const float> logits, std::int64_t count, double least,
                    std::vector<std::int32_t>& tokens) {
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  tokens.resize(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::erase_if(tokens, [&](std::int32_t id) {
    return !(logit(id) > -HUGE_VALF) || static_cast<double>(logit(id)) < least;
  });
  const auto end = tokens.begin() + std::min<std::ptrdiff_t>(std::ssize(tokens), count);
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](std::int32_t a, std::int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  tokens.erase(end, tokens.end());
}

std::vector<TokenLogprob> token_logprobs(std::span<const float> logits, std::int32_t token,
                                         std::int64_t count, const VectorKernels& vector) {
  const float log_sum = vector.log_sum_exp(logits.data(), std::ssize(logits));
  std::vector<std::int32_t> tokens;
  find_likeliest(logits, count, -HUGE_VAL, tokens);
  tokens.insert(tokens.begin(), token);
  std::vector<TokenLogprob> result;
  for (const std::int32_t id : tokens) {
    result.push_back({.token = id, .logprob = logits[static_cast<std::size_t>(id)] - log_sum});
  }
  return result;
}

}  // namespace moesaic
