#pragma once

#include <memory>

#include "launch/study/point_job.h"

namespace moesaic {

/// The jobs of one layer of --shape: layer and exchange. Checks that memory suffices. Throws
/// Error{usage}, AgreedError. Collective.
[[nodiscard]] std::unique_ptr<PointJob> make_shape_job(const Runtime& runtime);

}  // namespace moesaic
