#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "kernels/formats/bf16.h"
#include "kernels/quantized_rows.h"

// What packing and decoding of all formats are written with. Bytes of memory are little-endian.

namespace moesaic {

/// The codes of one step of a panel, one row after the other.
template <std::int64_t Depth>
struct StepCodes {
  std::uint8_t row[kPanelColumns][Depth];
};

/// Codes of step `step`; zero where the matrix has none.
template <std::int64_t Depth>
void load_step(const QuantizedRows& rows, std::int64_t step, StepCodes<Depth>& out) {
  assert(rows.num_rows <= kPanelColumns);
  const std::int64_t first = step * Depth;
  const std::int64_t count = std::min(Depth, rows.depth - first);
  if (rows.num_rows < kPanelColumns || count < Depth) std::memset(&out, 0, sizeof out);
  for (std::int64_t r = 0; r < rows.num_rows; ++r) {
    const std::uint8_t* const codes = rows.row_codes(r) + first;
    if (count == Depth) {
      std::memcpy(out.row[r], codes, Depth);
    } else {
      std::memcpy(out.row[r], codes, static_cast<std::size_t>(count));
    }
  }
}

/// Eight codes, the first in the low byte.
[[nodiscard]] inline std::uint64_t load_codes(const std::uint8_t* codes) noexcept {
  std::uint64_t eight;
  std::memcpy(&eight, codes, sizeof eight);
  return eight;
}

/// Eight times the same byte.
[[nodiscard]] constexpr std::uint64_t eight_times(std::uint8_t byte) noexcept {
  return 0x0101010101010101U * byte;
}

template <typename T>
[[nodiscard]] T load_as(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store_as(std::byte* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

/// One step of a bf16 panel from value(column, k), k in the step.
template <typename Value>
void fill_step(BFloat16* out, const Value& value) {
  for (std::int64_t k = 0; k < kStepDepth; ++k) {
    for (std::int64_t c = 0; c < kPanelColumns; ++c) {
      out[bf16_format::element_index(c, k)] = value(c, k);
    }
  }
}

/// Whether a value becomes an infinity or a NaN in bf16.
[[nodiscard]] inline bool is_beyond_bfloat16(float value) noexcept {
  return (to_bfloat16(value).bits & 0x7f80) == 0x7f80;
}

/// A scale as kernels take it: one below the smallest normal float counts as zero.
[[nodiscard]] inline float flushed_scale(float scale) noexcept {
  return std::fabs(scale) < std::numeric_limits<float>::min() ? 0.0F : scale;
}

}  // namespace moesaic
