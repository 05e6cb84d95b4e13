#pragma once

#include <cstdint>
#include <vector>

#include "tests/model/mixer_pass.h"
#include "tests/model/naive_gqa.h"

namespace moesaic {

using GqaProblem = MixerProblem<NaiveGqa>;

/// Numbers are exact in bf16, so that weights are the same in both precisions.
[[nodiscard]] GqaProblem make_gqa_problem(GqaConfig config, std::vector<std::int64_t> samples);

/// Forwards, without and with what is kept, and back.
[[nodiscard]] MixerResult run_gqa(const GqaProblem& problem, const MixerRun& run);

}  // namespace moesaic
