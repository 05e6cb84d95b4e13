#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/panel_steps.h"

// The codes of fp8_block, fp8_channel and mxfp8: e4m3 bytes in the order of the words of a bf16
// panel, [steps][16 lines][16 columns][2 k]. What is missing is zero.

namespace moesaic::e4m3_body {

inline constexpr std::int64_t kStepBytes = kTileBytes / 2;

[[nodiscard]] constexpr std::int64_t bytes(std::int64_t depth) noexcept {
  return step_count(Format::fp8_block, depth) * kStepBytes;
}

/// Throws Error{file} for a code that is NaN; `first_k` is that of the step.
void require_numbers(const StepCodes<kStepDepth>& codes, std::int64_t first_k);

void pack_step(const StepCodes<kStepDepth>& codes, std::byte* out);

/// The value of one element of a packed step.
[[nodiscard]] float element(const std::byte* step, std::int64_t column, std::int64_t k) noexcept;

}  // namespace moesaic::e4m3_body
