#include "kernels/formats/fp8_channel.h"

#include "kernels/formats/elements.h"
#include "kernels/formats/row_scales.h"
#include "kernels/packed_matrix.h"

namespace moesaic::fp8_channel_format {

void quantize(const FloatRows& rows, QuantizedRows& out) {
  quantize_rows_whole(rows, out, [](const FloatGroup& row) {
    const float scale = scale_for(row.amax, kLargestE4m3);
    encode_group(row, scale, 0, nearest_e4m3);
    return scale;
  });
}

void pack_panel(const QuantizedRows& rows, std::byte* panel) {
  StepCodes<kStepDepth> codes;
  for (std::int64_t step = 0; step < step_count(Format::fp8_channel, rows.depth); ++step) {
    load_step(rows, step, codes);
    e4m3_body::require_numbers(codes, step * kStepDepth);
    e4m3_body::pack_step(codes, panel + step * e4m3_body::kStepBytes);
  }
  store_row_scales(rows, 1, panel + scales_offset(rows.depth));
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out) {
  const std::byte* const codes = matrix.panel(panel) + step * e4m3_body::kStepBytes;
  fill_step(out, [&](std::int64_t column, std::int64_t k) {
    return to_bfloat16(e4m3_body::element(codes, column, k));
  });
}

}  // namespace moesaic::fp8_channel_format
