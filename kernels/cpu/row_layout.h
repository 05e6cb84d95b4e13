#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format.h"

namespace moesaic {

/// Distance in bytes of packed rows that hold `bytes` each: whole 64-byte lines, and an odd number
/// of them, so that rows a power of two long do not all lie in the same sets of the L1 cache.
[[nodiscard]] constexpr std::size_t packed_row_stride(std::int64_t bytes) noexcept {
  return static_cast<std::size_t>((bytes + 63) / 64 | 1) * 64;
}

/// Rows as floats, one a k, padded to whole steps.
[[nodiscard]] constexpr std::size_t float_row_bytes(std::int64_t depth) noexcept {
  return packed_row_stride(round_up(depth, kStepDepth) * 4);
}

/// Rows as bf16, one a k, padded to whole steps.
[[nodiscard]] constexpr std::size_t bf16_row_bytes(std::int64_t depth) noexcept {
  return packed_row_stride(round_up(depth, kStepDepth) * 2);
}

/// Rows as int8 + 128, one byte a k, padded to whole steps, followed by their scale (f32).
[[nodiscard]] constexpr std::size_t byte_row_bytes(std::int64_t depth) noexcept {
  return packed_row_stride(round_up(depth, kIntStepDepth) + 4);
}

/// Rows as int8 widened to int16, one a k, padded to whole steps, followed by their scale (f32).
[[nodiscard]] constexpr std::size_t word_row_bytes(std::int64_t depth) noexcept {
  return packed_row_stride(round_up(depth, kIntStepDepth) * 2 + 4);
}

}  // namespace moesaic
