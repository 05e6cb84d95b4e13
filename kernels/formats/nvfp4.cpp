#include "kernels/formats/nvfp4.h"

#include "kernels/formats/quantize_groups.h"
#include "kernels/packed_matrix.h"

namespace moesaic::nvfp4_format {
namespace {

/// The scale of one row and group, checked; 1 where there is none.
std::uint8_t load_scale(const QuantizedRows& rows, std::int64_t row, std::int64_t group) {
  if (row >= rows.num_rows || group >= rows.num_groups) return kE4m3One;
  const std::uint8_t scale = rows.scale_codes[rows.group_index(row, group)];
  require(!is_e4m3_nan(scale), ErrorKind::file,
          "row {} of a panel, k {}: the scale's e4m3 code {:#04x} is no number", row,
          group * kGroup, scale);
  return scale;
}

/// Takes a negative scale's sign into the codes, and the values of a zero one.
void normalize_codes(std::uint8_t* codes, std::uint8_t scale) {
  const auto flipped = static_cast<std::uint8_t>(scale >> 4 & 8);
  const std::uint8_t kept = (scale & 0x7f) == 0 ? 0 : 15;
  if (flipped == 0 && kept == 15) return;
  for (std::int64_t i = 0; i < kGroup; ++i) {
    codes[i] = static_cast<std::uint8_t>((codes[i] ^ flipped) & kept);
  }
}

std::uint8_t block_scale(float amax, float matrix_scale) {
  if (amax == 0 || matrix_scale == 0) return kE4m3One;
  const float scale = amax / (kLargestE2m1 * matrix_scale);
  return nearest_e4m3(std::clamp(scale, 0x1p-9F, kLargestE4m3));
}

}  // namespace

void quantize(const FloatRows& rows, const MatrixScales& scales, QuantizedRows& out) {
  const float matrix_scale = scales.matrix_scale();
  const std::int64_t groups = round_up(rows.depth, kGroup) / kGroup;
  out.scale_codes.assign(static_cast<std::size_t>(rows.num_rows * groups), 0);
  quantize_groups(rows, kGroup, out, [&](const FloatGroup& group) {
    const std::uint8_t scale = block_scale(group.amax, matrix_scale);
    out.scale_codes[group.index] = scale;
    encode_group(group, e4m3_to_float(scale) * matrix_scale, 0, nearest_e2m1);
  });
}

void pack_panel(const QuantizedRows& rows, std::byte* panel) {
  std::byte* scales = panel + scales_offset(rows.depth);
  std::fill(scales, panel + panel_bytes(rows.depth), std::byte{0});
  StepCodes<kStepDepth> codes;
  for (std::int64_t step = 0; step < step_count(Format::nvfp4, rows.depth); ++step) {
    load_step(rows, step, codes);
    for (std::int64_t half = 0; half < 2; ++half, scales += kPanelColumns) {
      for (std::int64_t r = 0; r < kPanelColumns; ++r) {
        const std::uint8_t scale = load_scale(rows, r, 2 * step + half);
        normalize_codes(codes.row[r] + half * kGroup, scale);
        scales[r] = std::byte{scale} & std::byte{0x7f};
      }
    }
    e2m1_body::pack_step(codes, panel + step * e2m1_body::kStepBytes);
  }
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out) {
  const std::byte* const codes = matrix.panel(panel) + step * e2m1_body::kStepBytes;
  const std::byte* const scales =
      matrix.panel(panel) + scales_offset(matrix.depth) + 2 * step * kPanelColumns;
  fill_step(out, [&](std::int64_t column, std::int64_t k) {
    const std::byte scale = scales[k / kGroup * kPanelColumns + column];
    return to_bfloat16(e2m1_body::element(codes, column, k) *
                       e4m3_to_float(std::to_integer<std::uint8_t>(scale)));
  });
}

}  // namespace moesaic::nvfp4_format
