#include "tests/kernels/format_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/formats/bf16.h"
#include "kernels/formats/elements.h"
#include "kernels/weight_format.h"

namespace moesaic {
namespace {

constexpr std::int64_t kGuardBytes = 64;
constexpr std::byte kGuard{0xab};

}  // namespace

QuantizedRows plain_rows(const Layout& layout, std::int64_t num_rows, std::int64_t depth) {
  const std::int64_t group = scale_group(layout, depth);
  QuantizedRows rows;
  rows.num_rows = num_rows;
  rows.depth = depth;
  rows.num_groups = (depth + group - 1) / group;
  rows.codes.resize(static_cast<std::size_t>(num_rows * depth));
  const auto groups = static_cast<std::size_t>(num_rows * rows.num_groups);
  switch (layout.format) {
    case Format::nvfp4:
      rows.scale_codes.assign(groups, kE4m3One);
      break;
    case Format::mxfp4:
    case Format::mxfp8:
      rows.scale_codes.assign(groups, kE8m0One);
      break;
    default:
      rows.scales.assign(groups, 1);
  }
  if (layout.format == Format::int4_group) rows.zeros.assign(groups, 8);
  return rows;
}

std::uint8_t& code_at(QuantizedRows& rows, std::int64_t row, std::int64_t k) {
  return rows.codes[static_cast<std::size_t>(row * rows.depth + k)];
}

QuantizedRows RandomRows::draw(std::int64_t num_rows, std::int64_t depth) {
  QuantizedRows rows = plain_rows(layout_, num_rows, depth);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t g = 0; g < rows.num_groups; ++g) draw_group_scale(rows, r, g);
    for (std::int64_t k = 0; k < depth; ++k) {
      code_at(rows, r, k) = draw_code(rows, rows.group_index(r, k / scale_group(layout_, depth)));
    }
  }
  return rows;
}

std::uint8_t RandomRows::below(unsigned bound) {
  return static_cast<std::uint8_t>(engine_() % bound);
}

std::uint8_t RandomRows::draw_scale_code() {
  if (layout_.format != Format::nvfp4) return below(kE8m0Nan);
  const std::uint8_t code = below(256);
  return is_e4m3_nan(code) ? kE4m3One : code;
}

float RandomRows::draw_scale() {
  // A scale of a row multiplies sums, and is exact only where neither is subnormal.
  const bool of_row = layout_.group == 0;
  std::uniform_real_distribution<float> exponent(of_row ? -100.0F : -126.0F, 118);
  const float scale = std::exp2(exponent(engine_)) * (below(4) == 0 ? -1.0F : 1.0F);
  if (layout_.format != Format::int4_group) return scale;
  const std::uint32_t kept = layout_.wide_scales ? 0xffffff00U : 0xffff0000U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & kept);
}

void RandomRows::draw_group_scale(QuantizedRows& rows, std::int64_t row, std::int64_t group) {
  const std::size_t index = rows.group_index(row, group);
  if (rows.scales.empty()) {
    rows.scale_codes[index] = draw_scale_code();
  } else if (layout_.format == Format::fp8_block && row > 0) {
    rows.scales[index] = rows.scales[rows.group_index(0, group)];
  } else {
    rows.scales[index] = draw_scale();
  }
  if (layout_.wide_scales) rows.zeros[index] = below(16);
}

std::uint8_t RandomRows::draw_code(const QuantizedRows& rows, std::size_t group) {
  switch (layout_.format) {
    case Format::int8:
      return below(256);
    case Format::int4:
      return static_cast<std::uint8_t>(below(16) - 8);
    case Format::int4_group:
    case Format::nvfp4:
      return below(16);
    default:
      break;
  }
  std::uint8_t code = 0;
  do {
    code = below(layout_.format == Format::mxfp4 ? 16 : 256);
  } while (is_beyond_bf16(rows, code, group));
  return code;
}

bool RandomRows::is_beyond_bf16(const QuantizedRows& rows, std::uint8_t code,
                                std::size_t group) const {
  const bool narrow = layout_.format == Format::mxfp4;
  const float element = narrow ? e2m1_to_float(code) : e4m3_to_float(code);
  const float scale =
      rows.scales.empty() ? e8m0_to_float(rows.scale_codes[group]) : rows.scales[group];
  return !std::isfinite(to_float(to_bfloat16(element * scale)));
}

OnePanel::OnePanel(const Layout& layout, const QuantizedRows& rows, float scale)
    : memory_(panel_bytes(layout, rows.depth) + kGuardBytes),
      matrix_{.layout = layout,
              .rows = rows.num_rows,
              .depth = rows.depth,
              .panels = memory_.data(),
              .scale = scale,
              .order = nullptr} {
  std::byte* const end = memory_.data() + matrix_.panel_stride();
  std::fill(memory_.data(), end + kGuardBytes, kGuard);
  pack_panel(layout, rows, memory_.data());
  EXPECT_EQ(std::count(end, end + kGuardBytes, kGuard), kGuardBytes);
}

float OnePanel::decoded(std::int64_t column, std::int64_t k) const {
  const std::int64_t depth = step_depth(matrix_.layout.format);
  const std::int64_t in_step = k % depth;
  if (is_integer(matrix_.layout.format)) {
    std::int8_t tile[kTileBytes];
    decode_int_step(matrix_, 0, k / depth, tile);
    return tile[in_step / 4 * 64 + column * 4 + in_step % 4];
  }
  BFloat16 lines[kTileBytes / 2];
  decode_step(matrix_, 0, k / depth, lines);
  return to_float(lines[bf16_format::element_index(column, in_step)]);
}

}  // namespace moesaic
