#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/vector_kernels.h"

namespace moesaic {

/// Natural log of a token's probability by the model's own logits: before bias, penalties,
/// temperature and limits. Travels between ranks as it stands.
struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;

  [[nodiscard]] bool operator==(const TokenLogprob&) const = default;
};

/// The `count` likeliest tokens by `logits`, the likeliest first, the lowest id first among equals;
/// none whose logit is NaN, -infinity or less than `least`.
void find_likeliest(std::span<const float> logits, std::int64_t count, double least,
                    std::vector<std::int32_t>& tokens);

/// Of `token`, then of the `count` likeliest.
[[nodiscard]] std::vector<TokenLogprob> token_logprobs(std::span<const float> logits,
                                                       std::int32_t token, std::int64_t count,
                                                       const VectorKernels& vector);

}  // namespace moesaic
