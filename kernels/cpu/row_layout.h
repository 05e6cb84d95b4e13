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

/// k of a group of int8 activations.
inline constexpr std::int64_t kByteGroupDepth = 128;

/// What belongs to a group of int8 codes.
struct ByteGroup {
  float scale;
  std::int32_t sum;  // of its codes
};

[[nodiscard]] constexpr std::int64_t byte_group_count(std::int64_t depth) noexcept {
  return round_up(depth, kByteGroupDepth) / kByteGroupDepth;
}

/// Rows as int8, one byte a k, padded to whole groups, followed by the ByteGroups. Of 16 codes the
/// vector kernels have every fourth side by side: those of k 0, 4, 8, 12, 1, 5, 9, 13, 2, ...
[[nodiscard]] constexpr std::size_t group_row_bytes(std::int64_t depth) noexcept {
  return packed_row_stride(byte_group_count(depth) *
                           (kByteGroupDepth + static_cast<std::int64_t>(sizeof(ByteGroup))));
}

/// Rows as int8, one byte a k, padded to whole steps, followed by a ByteGroup of the whole row.
[[nodiscard]] constexpr std::size_t signed_row_bytes(std::int64_t depth) noexcept {
  return packed_row_stride(round_up(depth, kIntStepDepth) +
                           static_cast<std::int64_t>(sizeof(ByteGroup)));
}

/// Rows as int8 widened to int16, one a k, padded to whole steps, followed by their scale (f32).
[[nodiscard]] constexpr std::size_t word_row_bytes(std::int64_t depth) noexcept {
  return packed_row_stride(round_up(depth, kIntStepDepth) * 2 + 4);
}

}  // namespace moesaic
