#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/panel_steps.h"

// The codes of nvfp4 and mxfp4: e2m1, four lines of a bf16 panel in one line of 64 bytes,
//
//   uint16 words[steps of 32 k][4][16 columns][2 parities]
//
// Bits 4 r to 4 r + 3 of word (step, j, column, parity) hold k = 32 step + 2 (4 j + r) + parity:
// the code's sign, its exponent, and a flag that says whether the significand is 1 rather than 1.5,
//
//   magnitude  0  0.5  1  1.5  2  3  4  6
//   exponent   0   0   1   1   2  2  3  3
//   flag       0   1   1   0   1  0  1  0
//
// so that value = (flag ? 1 : 1.5) * 2^(exponent - 1), but 0 if both are 0. Zeros have no sign;
// what is missing is zero.

namespace moesaic::e2m1_body {

inline constexpr std::int64_t kStepBytes = 256;

[[nodiscard]] constexpr std::int64_t bytes(std::int64_t depth) noexcept {
  return step_count(Format::nvfp4, depth) * kStepBytes;
}

void pack_step(const StepCodes<kStepDepth>& codes, std::byte* out);

/// The value of one element of a packed step.
[[nodiscard]] float element(const std::byte* step, std::int64_t column, std::int64_t k) noexcept;

}  // namespace moesaic::e2m1_body
