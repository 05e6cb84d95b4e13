#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/panel_steps.h"

// The codes of fp8_block, fp8_channel and mxfp8: e4m3 bytes, two lines of a bf16 panel in one line
// of 64 bytes,
//
//   uint8 codes[steps of 32 k][8 pairs of lines][4 blocks of 4 columns][2 lines][4 columns][2 k]
//
// so that interleaving the bytes of each 16 with others makes words of either line. What is missing
// is zero.

namespace moesaic::e4m3_body {

inline constexpr std::int64_t kStepBytes = kTileBytes / 2;

[[nodiscard]] constexpr std::int64_t bytes(std::int64_t depth) noexcept {
  return step_count(Format::fp8_block, depth) * kStepBytes;
}

/// Throws Error{file} for a code that is NaN; `first_k` is that of the step.
void require_numbers(const StepCodes<kStepDepth>& codes, std::int64_t first_k);

void pack_step(const StepCodes<kStepDepth>& codes, std::byte* out);

/// Where the code of one element is in a step.
[[nodiscard]] constexpr std::int64_t code_index(std::int64_t column, std::int64_t k) noexcept {
  const std::int64_t line = k / 2;
  return line / 2 * 64 + column / 4 * 16 + line % 2 * 8 + column % 4 * 2 + k % 2;
}

/// The value of one element of a packed step.
[[nodiscard]] float element(const std::byte* step, std::int64_t column, std::int64_t k) noexcept;

}  // namespace moesaic::e4m3_body
