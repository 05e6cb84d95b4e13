#pragma once

#include "launch/options/options.h"

namespace moesaic {

/// `moesaic study export smpi`: writes OUT/smpi/GROUP-RANKS for the groups of points and numbers of
/// ranks, by the rates that OUT/model.json holds. Returns the exit code.
int run_export_smpi(const Command& command);

}  // namespace moesaic
