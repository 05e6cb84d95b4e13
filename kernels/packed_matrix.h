#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format.h"

namespace moesaic {

/// Bytes of one packed panel of a matrix with this many columns (k); a multiple of 64.
[[nodiscard]] std::int64_t panel_bytes(const Layout& layout, std::int64_t depth) noexcept;

/// A packed weight matrix [rows, depth]: y[rows] = W x[depth]. Owns nothing.
struct PackedMatrix {
  Layout layout{};
  std::int64_t rows = 0;   // n: outputs
  std::int64_t depth = 0;  // k: inputs
  const std::byte* panels = nullptr;
  /// Multiplies every result (nvfp4: the scale of the whole tensor).
  float scale = 1;
  /// [depth] or null: packed k j meets input element order[j] (GPTQ with act-order, packed in the
  /// order of its groups).
  const std::int32_t* order = nullptr;
  /// Not 0: activations that are rounded to nvfp4 for this matrix take this scale in the place of
  /// one of their own row, and `scale` has been multiplied by it.
  float input_scale = 0;

  [[nodiscard]] std::int64_t num_panels() const noexcept { return panel_count(rows); }
  [[nodiscard]] std::int64_t panel_stride() const noexcept { return panel_bytes(layout, depth); }
  [[nodiscard]] const std::byte* panel(std::int64_t index) const noexcept {
    return panels + index * panel_stride();
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return num_panels() * panel_stride(); }
};

}  // namespace moesaic
