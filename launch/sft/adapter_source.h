#pragma once

#include <optional>
#include <string>

#include "launch/options/options.h"

namespace moesaic {

/// The directory of the adapter that a run begins with or goes on with; nothing where it makes a
/// new one. It is --lora's; where this is gone, and --resume goes on, the newest checkpoint in
/// OUTDIR, whose adapter has the same modules, ranks, scales and layout.
[[nodiscard]] std::optional<std::string> adapter_source(const Options& options);

}  // namespace moesaic
