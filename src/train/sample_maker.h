#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "src/chat/chat_template.h"
#include "src/tokenizer/tokenizer.h"
#include "src/train/sample_format.h"

namespace moesaic {

/// What turns lines into samples. Only the tokens format goes without a tokenizer, only
/// conversations need a chat template, only completions and texts a token that ends them.
struct SampleTools {
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::optional<std::int32_t> end_token;  ///< behind completions and texts
  std::int64_t vocab_size = 0;            ///< of the model
  TrainOn train_on = TrainOn::all;
};

/// A sample that owns its tokens; labels as TrainSample has them.
struct MadeSample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
};

/// The sample of one line. Throws Error{file} naming the line, the member and what is wrong: ids
/// that the model does not have, a conversation whose trained part cannot be told, no tokens, none
/// to end it with.
[[nodiscard]] MadeSample make_sample(const Json& line, SampleFormat format,
                                     const SampleTools& tools);

}  // namespace moesaic
