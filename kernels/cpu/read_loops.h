#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/roof.h"

namespace moesaic {

/// Reads `bytes` (a multiple of 1024) once. The result means nothing.
using ReadLoop = std::uint64_t (*)(const std::byte* data, std::int64_t bytes,
                                   const Prefetch& prefetch) noexcept;

[[nodiscard]] ReadLoop find_read_loop(Isa isa) noexcept;

}  // namespace moesaic
