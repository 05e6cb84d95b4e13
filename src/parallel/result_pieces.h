#pragma once

#include <cstdint>

namespace moesaic {

/// Between nodes the results of a rank's experts leave in about so many pieces.
inline constexpr std::int64_t kResultPieces = 8;

}  // namespace moesaic
