#pragma once

#include <memory>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/sft/sft_data.h"

namespace moesaic {

/// The training loop of `moesaic sft`: steps, losses of held-out data, checkpoints and metrics,
/// until the last step or until somebody asks to stop. Writes OUTDIR. Collective.
void train(Runtime& runtime, const OpenModel& model, const SftData& data);

}  // namespace moesaic
