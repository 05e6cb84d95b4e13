#include "kernels/formats/int8.h"

#include <array>
#include <cstring>
#include <span>

#include "kernels/formats/quantize_groups.h"
#include "kernels/formats/row_scales.h"
#include "kernels/formats/transpose_words.h"
#include "kernels/packed_matrix.h"

namespace moesaic::int8_format {

void quantize(const FloatRows& rows, QuantizedRows& out) {
  quantize_rows_whole(rows, out, [](const FloatGroup& row) {
    const float scale = scale_for(row.amax, 127);
    encode_group(row, scale, 0, nearest_integer);
    return scale;
  });
}

void pack_panel(const QuantizedRows& rows, std::byte* panel) {
  std::array<const std::byte*, kPanelColumns> starts{};
  for (std::int64_t r = 0; r < rows.num_rows; ++r) {
    starts[static_cast<std::size_t>(r)] = reinterpret_cast<const std::byte*>(rows.row_codes(r));
  }
  transpose_words(std::span(starts).first(static_cast<std::size_t>(rows.num_rows)),
                  static_cast<std::size_t>(rows.depth),
                  static_cast<std::size_t>(round_up(rows.depth, kIntStepDepth)), panel);
  store_row_scales(rows, 1, panel + scales_offset(rows.depth));
  store_code_sums(rows, 128, panel + offsets_offset(rows.depth));
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step,
                 std::int8_t* out) {
  std::memcpy(out, matrix.panel(panel) + step * kTileBytes, kTileBytes);
}

}  // namespace moesaic::int8_format
