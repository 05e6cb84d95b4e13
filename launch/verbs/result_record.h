#pragma once

#include <cstdint>
#include <string>

#include "launch/input/prompts.h"
#include "launch/input/requests.h"
#include "src/generate/open_requests.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// What a result belongs to.
struct ResultPlace {
  const Prompt& prompt;
  RequestList::Place place;
  std::int64_t prompt_tokens = 0;
};

/// A line of results without its end (docs/json.md has the fields).
[[nodiscard]] std::string result_record(const ResultPlace& place, const Finished& finished,
                                        const Tokenizer& tokenizer);

/// The same for a prompt with an error, number `index`.
[[nodiscard]] std::string error_record(const Prompt& prompt, std::int64_t index);

}  // namespace moesaic
