#pragma once

#include <string>

#include "src/model/weight_layout.h"

namespace moesaic {

/// Writes `out` from the checkpoint `directory` as `moesaic convert` does, in one thread.
void convert_model(const std::string& directory, const WantedLayouts& layouts,
                   const std::string& out);

}  // namespace moesaic
