#pragma once

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/sft/sft_data.h"

namespace moesaic {

/// Throws Error{usage} for options of a run that do not go together, before anything is loaded; on
/// rank 0 also what check_output() does.
void check_run_options(const Options& options, bool is_first);

/// The training loop of `moesaic sft`: steps, losses of held-out data, checkpoints and metrics,
/// until the last step or until somebody asks to stop. Writes OUTDIR. Collective.
void train(Runtime& runtime, const OpenModel& model, const SftData& data);

}  // namespace moesaic
