#include "kernels/formats/fp8_block.h"

#include "kernels/formats/elements.h"
#include "kernels/formats/normalize_codes.h"
#include "kernels/formats/quantize_groups.h"
#include "kernels/packed_matrix.h"

namespace moesaic::fp8_block_format {
namespace {

/// The scale of a group, checked.
float shared_scale(const QuantizedRows& rows, std::int64_t group, std::int64_t first_k) {
  if (rows.num_rows == 0) return 0;
  const float scale = rows.scales[rows.group_index(0, group)];
  require(std::isfinite(scale), ErrorKind::file, "k {} of a panel: the scale {} is no number",
          first_k, scale);
  for (std::int64_t r = 1; r < rows.num_rows; ++r) {
    const float other = rows.scales[rows.group_index(r, group)];
    require(other == scale, ErrorKind::internal,
            "rows 0 and {} of a panel, k {}: scales {} and {} of one fp8 block", r, first_k, scale,
            other);
  }
  return flushed_scale(scale);
}

MagnitudeRange range_of(float scale) {
  constexpr MagnitudeRange kAll{1, 0x7e};
  const float magnitude = std::fabs(scale);
  if (magnitude >= 0x1p-117F && magnitude <= 0x1p118F) return kAll;
  return magnitude_range<e4m3_to_float, 0x7e>(static_cast<double>(magnitude));
}

void negate(StepCodes<kStepDepth>& codes) {
  for (auto& row : codes.row) {
    for (std::uint8_t& code : row) code ^= 0x80;
  }
}

}  // namespace

void quantize(const Layout& layout, const FloatRows& rows, const MatrixScales& scales,
              QuantizedRows& out) {
  const std::int64_t groups = round_up(rows.depth, layout.group) / layout.group;
  out.scales.assign(static_cast<std::size_t>(rows.num_rows * groups), 0);
  quantize_groups(rows, layout.group, out, [&](const FloatGroup& group) {
    const float scale = scale_for(scales.block_amax(group.row, group.k), kLargestE4m3);
    out.scales[group.index] = scale;
    encode_group(group, scale, 0, nearest_e4m3);
  });
}

void pack_panel(const Layout& layout, const QuantizedRows& rows, std::byte* panel) {
  std::byte* const scales = panel + scales_offset(rows.depth);
  std::fill(scales, panel + fp8_block_format::panel_bytes(layout, rows.depth), std::byte{0});
  StepCodes<kStepDepth> codes;
  for (std::int64_t step = 0; step < step_count(Format::fp8_block, rows.depth); ++step) {
    const std::int64_t first_k = step * kStepDepth;
    const std::int64_t group = first_k / layout.group;
    const float scale = shared_scale(rows, group, first_k);
    load_step(rows, step, codes);
    e4m3_body::require_numbers(codes, first_k);
    if (std::signbit(scale)) negate(codes);
    const MagnitudeRange range = range_of(scale);
    for (std::int64_t r = 0; r < kPanelColumns; ++r) {
      normalize_codes<0x80>(codes.row[r], range, r, step);
    }
    e4m3_body::pack_step(codes, panel + step * e4m3_body::kStepBytes);
    store_as(scales + group * 4, std::fabs(scale));
  }
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out) {
  const std::byte* const codes = matrix.panel(panel) + step * e4m3_body::kStepBytes;
  const std::int64_t group = step * kStepDepth / matrix.layout.group;
  const auto scale = load_as<float>(matrix.panel(panel) + scales_offset(matrix.depth) + group * 4);
  fill_step(out, [&](std::int64_t column, std::int64_t k) {
    return to_bfloat16(e4m3_body::element(codes, column, k) * scale);
  });
}

}  // namespace moesaic::fp8_block_format
