#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/generate/token_logprobs.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// {"content": [{"id", "token", "logprob", "top_logprobs": [{"id", "token", "logprob"}, ...]},
/// ...]}, of each new token, as OpenAI's chat completions have it, and the ids. `token` is the text
/// of the token after another one; one that is part of a character has U+FFFD.
[[nodiscard]] std::string logprobs_json(std::span<const std::vector<TokenLogprob>> tokens,
                                        const Tokenizer& tokenizer);

}  // namespace moesaic
