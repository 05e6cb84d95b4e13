#include "kernels/formats/bf16.h"

#include <array>
#include <cassert>
#include <cstddef>

#include "kernels/formats/transpose_words.h"

namespace moesaic::bf16_format {

void pack_panel(std::span<const BFloat16* const> rows, std::int64_t depth, BFloat16* panel) {
  std::array<const std::byte*, kPanelColumns> bytes{};
  assert(rows.size() <= bytes.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    bytes[r] = reinterpret_cast<const std::byte*>(rows[r]);
  }
  transpose_words(std::span(bytes).first(rows.size()),
                  static_cast<std::size_t>(depth) * sizeof(BFloat16),
                  static_cast<std::size_t>(round_up(depth, kStepDepth)) * sizeof(BFloat16),
                  reinterpret_cast<std::byte*>(panel));
}

void unpack_column(const BFloat16* panel, std::int64_t column, std::int64_t depth, BFloat16* out) {
  for (std::int64_t k = 0; k < depth; ++k) out[k] = panel[element_index(column, k)];
}

}  // namespace moesaic::bf16_format
