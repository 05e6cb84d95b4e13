#pragma once

#include "launch/options/options.h"

namespace moesaic {

/// The verb whose work moesaic plan plans with these options: that of --job, study point of
/// --shape.
[[nodiscard]] Verb planned_verb(const Options& options);

/// Throws Error{usage} for an option of the command line that plan takes for another job than the
/// one that it plans.
void refuse_options_of_others(const Command& command);

}  // namespace moesaic
