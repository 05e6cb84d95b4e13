#pragma once

#include <string>

#include "launch/options/options.h"

namespace moesaic {

/// Makes OUTDIR ready on rank 0: a new directory, an old one that is gone on with (--resume), or
/// one that --overwrite empties. It holds the options of the run, options.ini. Throws Error{usage}
/// if it is there and neither was asked for, or if it is none of `moesaic sft`; Error{resource} if
/// it cannot be made.
void prepare_output(const Command& command);

}  // namespace moesaic
