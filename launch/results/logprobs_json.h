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

/// The text of a token as it reads after another one: some tokenizers take the space off the first.
/// Ends of characters that become one together have only their text as it reads alone.
[[nodiscard]] std::string logprob_token_text(std::int32_t token, const Tokenizer& tokenizer);

}  // namespace moesaic
