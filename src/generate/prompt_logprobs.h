#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/grouped_gemm.h"
#include "src/generate/rank_sequences.h"
#include "src/generate/token_logprobs.h"

namespace moesaic {

/// What a model made of a token of a prompt, given those before it. Travels between ranks as it
/// stands.
struct PromptLogprob {
  RequestId request = 0;
  std::int64_t position = 0;  // of the token
  TokenLogprob logprob;
};

/// Of the tokens that `rows` of all ranks are about: at each position its own, then those of as
/// many of the likeliest as the request wants; positions of a request ascend. On all ranks.
/// Collective.
[[nodiscard]] std::vector<PromptLogprob> gather_prompt_logprobs(const Compute& compute,
                                                                Communicator& world,
                                                                std::span<const LogitsRows> rows);

}  // namespace moesaic
