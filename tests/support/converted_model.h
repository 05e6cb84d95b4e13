#pragma once

#include <optional>
#include <string>

#include "kernels/format.h"

namespace moesaic {

/// Writes `out` from the checkpoint `directory` as `moesaic convert` does, in one thread.
void convert_model(const std::string& directory, const std::optional<Layout>& expert_layout,
                   const std::string& out);

}  // namespace moesaic
