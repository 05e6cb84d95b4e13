#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "src/generate/logit_adjustment.h"

namespace moesaic {

/// A case of tests/data/sampling.json (tools/make_sampling_goldens.py).
struct SamplingCase {
  SamplingOptions options;  // what the case does not say changes nothing
  std::vector<std::int32_t> tokens;
  std::int64_t prompt_tokens = 0;
  std::vector<float> logits;
  std::vector<float> adjusted;
  std::vector<double> probabilities;  // 0: removed

  [[nodiscard]] TextSoFar text() const { return {tokens, prompt_tokens}; }
};

[[nodiscard]] SamplingCase read_sampling_case(const Json& object);

}  // namespace moesaic
