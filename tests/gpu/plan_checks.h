#pragma once

#include <vector>

#include "tests/gpu/row_checks.h"

namespace moesaic {

/// Plans that the GPU makes of choices, against plain loops; and passes of experts that a graph
/// plans and runs, launched again and again with other choices, against the same passes that the
/// host plans.
[[nodiscard]] std::vector<RowCheck> check_plans(Device& device);

}  // namespace moesaic
