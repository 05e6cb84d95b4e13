#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format.h"

namespace moesaic {

/// Bytes of one packed panel of a matrix with this many columns (k).
[[nodiscard]] std::int64_t panel_bytes(Format format, std::int64_t depth) noexcept;

/// A packed weight matrix [rows, depth]: y[rows] = W x[depth]. Owns nothing.
struct PackedMatrix {
  Format format = Format::bf16;
  std::int64_t rows = 0;   // n: outputs
  std::int64_t depth = 0;  // k: inputs
  const std::byte* panels = nullptr;

  [[nodiscard]] std::int64_t num_panels() const noexcept { return panel_count(rows); }
  [[nodiscard]] const std::byte* panel(std::int64_t index) const noexcept {
    return panels + index * panel_bytes(format, depth);
  }
  [[nodiscard]] std::int64_t bytes() const noexcept {
    return num_panels() * panel_bytes(format, depth);
  }
};

}  // namespace moesaic
