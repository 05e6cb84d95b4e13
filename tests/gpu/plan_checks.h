#pragma once

#include <vector>

#include "kernels/cuda/grouped_library.h"
#include "tests/gpu/row_checks.h"

namespace moesaic {

/// Plans that the GPU makes of choices, against plain loops; and passes of experts that a graph
/// plans and runs, launched again and again with other choices, against the same passes that the
/// host plans. Of products by `library` if there is one, else of all other kernels.
[[nodiscard]] std::vector<RowCheck> check_plans(Device& device,
                                                const GroupedLibrary* library = nullptr);

}  // namespace moesaic
