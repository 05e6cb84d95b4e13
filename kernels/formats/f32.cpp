#include "kernels/formats/f32.h"

#include <array>
#include <cassert>
#include <cstddef>

#include "kernels/formats/transpose_words.h"

namespace moesaic::f32_format {

void pack_panel(std::span<const float* const> rows, std::int64_t depth, float* panel) {
  std::array<const std::byte*, kPanelColumns> bytes{};
  assert(rows.size() <= bytes.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    bytes[r] = reinterpret_cast<const std::byte*>(rows[r]);
  }
  transpose_words(std::span(bytes).first(rows.size()),
                  static_cast<std::size_t>(depth) * sizeof(float),
                  static_cast<std::size_t>(round_up(depth, kStepDepth)) * sizeof(float),
                  reinterpret_cast<std::byte*>(panel));
}

void unpack_column(const float* panel, std::int64_t column, std::int64_t depth, float* out) {
  for (std::int64_t k = 0; k < depth; ++k) out[k] = panel[k * kPanelColumns + column];
}

}  // namespace moesaic::f32_format
