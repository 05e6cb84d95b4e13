#pragma once

#include <cstdint>
#include <string_view>

#include "launch/job/runtime.h"

namespace moesaic {

/// Bytes of a rank that weights rotate over, whole MiB: --footprint, or what a third of the node's
/// available memory leaves for each of its ranks. Throws Error{usage} for a value that is none.
[[nodiscard]] std::int64_t cold_bytes(const Runtime& runtime);

/// Throws Error{resource} if available memory leaves less than `bytes` of it, for `use`:
/// "matrices". What --footprint leaves less of is another's error.
void require_cold_bytes(const Runtime& runtime, std::int64_t bytes, std::string_view use);

}  // namespace moesaic
