#pragma once

#include <vector>

#include "tests/gpu/device_case.h"

namespace moesaic {

/// Of MLPs for the library of grouped products: no rows and one; just as many as a block of scales
/// has, one less and one more; several blocks; every form of gating.
[[nodiscard]] std::vector<DeviceCase::Shape> grouped_shapes(float input_scale = 0);

}  // namespace moesaic
