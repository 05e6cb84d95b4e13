#include "kernels/formats/fp8_block.h"

#include <bit>

#include "kernels/formats/elements.h"
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

/// Throws Error{file} if a value of the step is beyond bf16.
void check_values(const StepCodes<kStepDepth>& codes, float scale, std::int64_t first_k) {
  if (!is_beyond_bfloat16(kLargestE4m3 * scale)) return;
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    for (std::int64_t k = 0; k < kStepDepth; ++k) {
      const float value = e4m3_to_float(codes.row[r][k]) * scale;
      require(!is_beyond_bfloat16(value), ErrorKind::file,
              "row {} of a panel, k {}: the weight {} is beyond the range of bf16", r, first_k + k,
              value);
    }
  }
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
    check_values(codes, scale, first_k);
    if (std::signbit(scale)) negate(codes);
    e4m3_body::pack_step(codes, panel + step * e4m3_body::kStepBytes);
    store_as(scales + group * 4, std::fabs(scale));
  }
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out) {
  const std::byte* const codes = matrix.panel(panel) + step * e4m3_body::kStepBytes;
  const std::int64_t group = step * kStepDepth / matrix.layout.group;
  const auto scale = load_as<float>(matrix.panel(panel) + scales_offset(matrix.depth) + group * 4);
  fill_step(out, [&](std::int64_t column, std::int64_t k) {
    return bfloat16_product(e4m3_body::element(codes, column, k), scale);
  });
}

}  // namespace moesaic::fp8_block_format
