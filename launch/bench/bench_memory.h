#pragma once

#include <cstdint>

#include "launch/job/runtime.h"

namespace moesaic {

/// Bytes of a rank that weights rotate over, whole MiB: --footprint, or what a third of the node's
/// available memory leaves for each of its ranks. Throws Error{usage} for a value that is none.
[[nodiscard]] std::int64_t cold_bytes(const Runtime& runtime);

}  // namespace moesaic
