#include "kernels/weight_format.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "kernels/formats/elements.h"
#include "kernels/formats/fp8_block.h"
#include "kernels/formats/fp8_channel.h"
#include "kernels/formats/int4.h"
#include "kernels/formats/int4_group.h"
#include "kernels/formats/int8.h"
#include "kernels/formats/mxfp4.h"
#include "kernels/formats/mxfp8.h"
#include "kernels/formats/nvfp4.h"
#include "kernels/formats/panel_steps.h"
#include "kernels/formats/quantize_groups.h"

namespace moesaic {
namespace {

[[noreturn]] void fail_unquantized(Format format) {
  fail(ErrorKind::internal, "{} has no codes", format_name(format));
}

float group_scale(Format format, const QuantizedRows& rows, std::size_t group) {
  switch (format) {
    case Format::nvfp4:
      return e4m3_to_float(rows.scale_codes[group]);
    case Format::mxfp4:
    case Format::mxfp8:
      return e8m0_to_float(rows.scale_codes[group]);
    default:
      return rows.scales[group];
  }
}

}  // namespace

std::int64_t scale_group(const Layout& layout, std::int64_t depth) noexcept {
  switch (layout.format) {
    case Format::int4_group:
    case Format::fp8_block:
      return layout.group;
    case Format::nvfp4:
      return nvfp4_format::kGroup;
    case Format::mxfp4:
      return mxfp4_format::kGroup;
    case Format::mxfp8:
      return mxfp8_format::kGroup;
    default:
      return std::max<std::int64_t>(depth, 1);
  }
}

bool has_scale_codes(Format format) noexcept {
  return format == Format::nvfp4 || format == Format::mxfp4 || format == Format::mxfp8;
}

float code_value(Format format, std::uint8_t code, std::uint8_t zero) {
  switch (format) {
    case Format::int8:
    case Format::int4:
      return static_cast<std::int8_t>(code);
    case Format::int4_group:
      return static_cast<float>(code - zero);
    case Format::fp8_block:
    case Format::fp8_channel:
    case Format::mxfp8:
      return e4m3_to_float(code);
    case Format::nvfp4:
    case Format::mxfp4:
      return e2m1_to_float(code);
    default:
      fail_unquantized(format);
  }
}

MatrixScales::MatrixScales(const Layout& layout, std::int64_t rows, std::int64_t depth)
    : layout_(layout), depth_(depth), blocks_per_row_(1) {
  std::int64_t blocks = needed(layout.format) ? 1 : 0;
  if (layout.format == Format::fp8_block) {
    blocks_per_row_ = round_up(depth, layout.group) / layout.group;
    blocks = round_up(rows, layout.group) / layout.group * blocks_per_row_;
  }
  amax_.assign(static_cast<std::size_t>(blocks), 0);
}

void MatrixScales::add_rows(std::int64_t first_row, std::span<const float> values) {
  if (amax_.empty() || depth_ == 0) return;
  const std::int64_t group = layout_.format == Format::fp8_block ? layout_.group : depth_;
  assert(std::ssize(values) % depth_ == 0);
  for (std::int64_t r = 0; r < std::ssize(values) / depth_; ++r) {
    for (std::int64_t k = 0; k < depth_; k += group) {
      const auto part = values.subspan(static_cast<std::size_t>(r * depth_ + k),
                                       static_cast<std::size_t>(std::min(group, depth_ - k)));
      float& amax = amax_[block_index(first_row + r, k)];
      amax = std::max(amax, largest_magnitude(part));
    }
  }
}

std::size_t MatrixScales::block_index(std::int64_t row, std::int64_t k) const noexcept {
  if (layout_.format != Format::fp8_block) return 0;
  return static_cast<std::size_t>(row / layout_.group * blocks_per_row_ + k / layout_.group);
}

float MatrixScales::matrix_scale() const noexcept {
  if (layout_.format != Format::nvfp4) return 1;
  return scale_for(amax_.front(), nvfp4_format::kLargestValue);
}

float MatrixScales::block_amax(std::int64_t row, std::int64_t k) const noexcept {
  return amax_[block_index(row, k)];
}

void quantize_rows(const Layout& layout, const FloatRows& rows, const MatrixScales* scales,
                   QuantizedRows& out) {
  assert(std::ssize(rows.values) >= rows.num_rows * rows.depth);
  assert(scales != nullptr || !MatrixScales::needed(layout.format));
  out.scales.clear();
  out.scale_codes.clear();
  out.zeros.clear();
  switch (layout.format) {
    case Format::int8:
      return int8_format::quantize(rows, out);
    case Format::int4:
      return int4_format::quantize(rows, out);
    case Format::int4_group:
      return int4_group_format::quantize(layout, rows, out);
    case Format::fp8_block:
      return fp8_block_format::quantize(layout, rows, *scales, out);
    case Format::fp8_channel:
      return fp8_channel_format::quantize(rows, out);
    case Format::nvfp4:
      return nvfp4_format::quantize(rows, *scales, out);
    case Format::mxfp4:
      return mxfp4_format::quantize(rows, out);
    case Format::mxfp8:
      return mxfp8_format::quantize(rows, out);
    default:
      fail_unquantized(layout.format);
  }
}

void dequantize_rows(const Layout& layout, const QuantizedRows& rows, float matrix_scale,
                     std::span<float> out) {
  assert(std::ssize(out) >= rows.num_rows * rows.depth);
  const std::int64_t group = scale_group(layout, rows.depth);
  for (std::int64_t r = 0; r < rows.num_rows; ++r) {
    for (std::int64_t k = 0; k < rows.depth; ++k) {
      const std::size_t index = rows.group_index(r, k / group);
      const std::uint8_t zero = rows.zeros.empty() ? std::uint8_t{0} : rows.zeros[index];
      const float value = code_value(layout.format, rows.row_codes(r)[k], zero);
      out[static_cast<std::size_t>(r * rows.depth + k)] =
          value * group_scale(layout.format, rows, index) * matrix_scale;
    }
  }
}

void pack_panel(const Layout& layout, const QuantizedRows& rows, std::byte* panel) {
  assert(rows.num_rows <= kPanelColumns);
  switch (layout.format) {
    case Format::int8:
      return int8_format::pack_panel(rows, panel);
    case Format::int4:
      return int4_format::pack_panel(rows, panel);
    case Format::int4_group:
      return int4_group_format::pack_panel(layout, rows, panel);
    case Format::fp8_block:
      return fp8_block_format::pack_panel(layout, rows, panel);
    case Format::fp8_channel:
      return fp8_channel_format::pack_panel(rows, panel);
    case Format::nvfp4:
      return nvfp4_format::pack_panel(rows, panel);
    case Format::mxfp4:
      return mxfp4_format::pack_panel(rows, panel);
    case Format::mxfp8:
      return mxfp8_format::pack_panel(rows, panel);
    default:
      fail_unquantized(layout.format);
  }
}

void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out) {
  switch (matrix.layout.format) {
    case Format::bf16:
      std::memcpy(out, matrix.panel(panel) + step * kTileBytes, kTileBytes);
      return;
    case Format::int4_group:
      return int4_group_format::decode_step(matrix, panel, step, out);
    case Format::fp8_block:
      return fp8_block_format::decode_step(matrix, panel, step, out);
    case Format::fp8_channel:
      return fp8_channel_format::decode_step(matrix, panel, step, out);
    case Format::nvfp4:
      return nvfp4_format::decode_step(matrix, panel, step, out);
    case Format::mxfp4:
      return mxfp4_format::decode_step(matrix, panel, step, out);
    case Format::mxfp8:
      return mxfp8_format::decode_step(matrix, panel, step, out);
    default:
      fail(ErrorKind::internal, "{} has no steps of bf16", format_name(matrix.layout.format));
  }
}

void decode_int_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step,
                     std::int8_t* out) {
  require(is_integer(matrix.layout.format), ErrorKind::internal, "{} has no steps of int8",
          format_name(matrix.layout.format));
  matrix.layout.format == Format::int8 ? int8_format::decode_step(matrix, panel, step, out)
                                       : int4_format::decode_step(matrix, panel, step, out);
}

float column_scale(const PackedMatrix& matrix, std::int64_t column) noexcept {
  const auto scale_at = [&](std::int64_t offset) {
    const std::byte* const panel = matrix.panel(column / kPanelColumns);
    return matrix.scale * load_as<float>(panel + offset + column % kPanelColumns * 4);
  };
  switch (matrix.layout.format) {
    case Format::int8:
      return scale_at(int8_format::scales_offset(matrix.depth));
    case Format::int4:
      return scale_at(int4_format::scales_offset(matrix.depth));
    case Format::fp8_channel:
      return scale_at(fp8_channel_format::scales_offset(matrix.depth));
    default:
      return matrix.scale;
  }
}

}  // namespace moesaic
