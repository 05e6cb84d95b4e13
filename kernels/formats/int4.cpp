#include "kernels/formats/int4.h"

#include <cstdlib>

#include "kernels/formats/quantize_groups.h"
#include "kernels/formats/row_scales.h"
#include "kernels/packed_matrix.h"

namespace moesaic::int4_format {
namespace {

/// The 16 lines of an AMX tile, four k each, in pairs.
void pack_step(const StepCodes<kIntStepDepth>& codes, std::byte* out) {
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    for (std::int64_t pair = 0; pair < 8; ++pair) {
      const std::uint64_t eight = load_codes(codes.row[r] + 8 * pair) & eight_times(0x0f);
      store_as(out + pair * 64 + r * 4, static_cast<std::uint32_t>(eight | eight >> 28));
    }
  }
}

}  // namespace

void quantize(const FloatRows& rows, QuantizedRows& out) {
  quantize_rows_whole(rows, out, [](const FloatGroup& row) {
    const float sixteenth = scale_for(row.amax, 112);
    encode_group(row, sixteenth, 0, [](float value) {
      const std::int32_t integer = nearest_integer(value);
      const std::int32_t code = (std::abs(integer) + 8) >> 4;
      return integer < 0 ? -code : code;
    });
    return sixteenth * 16;
  });
}

void pack_panel(const QuantizedRows& rows, std::byte* panel) {
  StepCodes<kIntStepDepth> codes;
  for (std::int64_t step = 0; step < step_count(Format::int4, rows.depth); ++step) {
    load_step(rows, step, codes);
    pack_step(codes, panel + step * kStepBytes);
  }
  store_row_scales(rows, 1.0F / 16, panel + scales_offset(rows.depth));
  store_code_sums(rows, 128 * 16, panel + offsets_offset(rows.depth));
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step,
                 std::int8_t* out) {
  const std::byte* const codes = matrix.panel(panel) + step * kStepBytes;
  for (std::int64_t line = 0; line < 16; ++line) {
    for (std::int64_t i = 0; i < 64; ++i) {  // 4 column + k % 4
      const auto byte = std::to_integer<unsigned>(codes[line / 2 * 64 + i]);
      const unsigned nibble = line % 2 == 0 ? byte & 15 : byte >> 4;
      out[line * 64 + i] = static_cast<std::int8_t>(nibble << 4);
    }
  }
}

}  // namespace moesaic::int4_format
