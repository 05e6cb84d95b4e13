#pragma once

#include "launch/plan/planned_model.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {

/// How often tokens choose each expert, as --routing says; by the model itself where that is
/// "model", which is then run over the beginning of --text, one layer in memory at a time. Throws
/// Error{usage} for a text without "model" and "model" without a text or weights, Error{file} for
/// what cannot be read.
[[nodiscard]] ExpertPopularity planned_routing(const Options& options, const PlannedModel& planned);

}  // namespace moesaic
