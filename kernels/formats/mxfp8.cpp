#include "kernels/formats/mxfp8.h"

#include "kernels/formats/power_scales.h"
#include "kernels/formats/quantize_groups.h"
#include "kernels/packed_matrix.h"

namespace moesaic::mxfp8_format {
namespace {

constexpr std::uint8_t kSign = 0x80;
constexpr auto kRanges = make_magnitude_ranges<e4m3_to_float, 0x7e>();

}  // namespace

void quantize(const FloatRows& rows, QuantizedRows& out) {
  out.scale_codes.assign(
      static_cast<std::size_t>(rows.num_rows * step_count(Format::mxfp8, rows.depth)), 0);
  quantize_groups(rows, kGroup, out, [&](const FloatGroup& group) {
    const std::uint8_t scale = e8m0_not_below(group.amax / kLargestE4m3);
    out.scale_codes[group.index] = scale;
    encode_group(group, e8m0_to_float(scale), 0, nearest_e4m3);
  });
}

void pack_panel(const QuantizedRows& rows, std::byte* panel) {
  std::byte* const scales = panel + scales_offset(rows.depth);
  std::fill(scales, panel + panel_bytes(rows.depth), std::byte{0});
  StepCodes<kStepDepth> codes;
  for (std::int64_t step = 0; step < step_count(Format::mxfp8, rows.depth); ++step) {
    load_step(rows, step, codes);
    e4m3_body::require_numbers(codes, step * kStepDepth);
    for (std::int64_t r = 0; r < kPanelColumns; ++r) {
      const std::uint8_t scale = power_scale(rows, r, step);
      normalize_codes<kSign>(codes.row[r], kRanges[scale], r, step);
      scales[step * kPanelColumns + r] = std::byte{scale};
    }
    e4m3_body::pack_step(codes, panel + step * e4m3_body::kStepBytes);
  }
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out) {
  const std::byte* const codes = matrix.panel(panel) + step * e4m3_body::kStepBytes;
  const std::byte* const scales =
      matrix.panel(panel) + scales_offset(matrix.depth) + step * kPanelColumns;
  fill_step(out, [&](std::int64_t column, std::int64_t k) {
    const auto scale = std::to_integer<std::uint8_t>(scales[column]);
    return power_scaled(e4m3_body::element(codes, column, k), scale);
  });
}

}  // namespace moesaic::mxfp8_format
