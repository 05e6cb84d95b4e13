#include "tests/kernels/quantized_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "kernels/formats/bf16.h"
#include "kernels/formats/elements.h"
#include "kernels/formats/power_scales.h"
#include "kernels/weight_format.h"
#include "tests/kernels/gemm_models.h"

namespace moesaic {
namespace {

std::uint8_t random_code(Format format, std::mt19937_64& random) {
  const auto byte = static_cast<std::uint8_t>(random());
  switch (format) {
    case Format::int8:
      return byte;
    case Format::int4:
      return static_cast<std::uint8_t>(static_cast<std::int8_t>(byte % 16 - 8));
    case Format::fp8_block:
    case Format::fp8_channel:
    case Format::mxfp8:
      return (byte & 0x7f) == 0x7f ? std::uint8_t{0x80} : byte;  // no NaN
    default:
      return byte % 16;
  }
}

std::uint8_t random_scale_code(Format format, std::mt19937_64& random) {
  if (format == Format::nvfp4) return static_cast<std::uint8_t>(random() % 0x7f);
  return static_cast<std::uint8_t>(100 + random() % 40);
}

/// One row a call, so that rows of an fp8 block share its scales.
void fill_scales(const Layout& layout, QuantizedRows& rows, std::mt19937_64& random) {
  std::uniform_real_distribution<float> scale(0.001F, 0.1F);
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    for (std::int64_t group = 0; group < rows.num_groups; ++group) {
      if (has_scale_codes(layout.format)) {
        rows.scale_codes.push_back(random_scale_code(layout.format, random));
        continue;
      }
      const bool shared = layout.format == Format::fp8_block && row % layout.group != 0;
      const float value = shared ? rows.scales[rows.group_index(row - 1, group)] : scale(random);
      const bool narrow = layout.format == Format::int4_group && !layout.wide_scales;
      rows.scales.push_back(narrow ? to_float(to_bfloat16(value)) : value);
      if (layout.format != Format::int4_group) continue;
      rows.zeros.push_back(layout.wide_scales ? static_cast<std::uint8_t>(random() % 16) : 8);
    }
  }
}

QuantizedRows slice(const QuantizedRows& all, std::int64_t first, std::int64_t count) {
  QuantizedRows part;
  part.num_rows = count;
  part.depth = all.depth;
  part.num_groups = all.num_groups;
  const auto copy = [&](const auto& from, auto& to, std::int64_t per_row) {
    if (!from.empty())
      to.assign(from.begin() + first * per_row, from.begin() + (first + count) * per_row);
  };
  copy(all.codes, part.codes, all.depth);
  copy(all.scales, part.scales, all.num_groups);
  copy(all.scale_codes, part.scale_codes, all.num_groups);
  copy(all.zeros, part.zeros, all.num_groups);
  return part;
}

/// What the codes of one column stand for, less 8 for int4_group.
std::vector<BFloat16> column_codes(const RandomCodes& weights, std::int64_t column) {
  const QuantizedRows& rows = weights.rows();
  const Layout& layout = weights.matrix().layout;
  const std::int64_t group = scale_group(layout, rows.depth);
  std::vector<BFloat16> codes;
  for (std::int64_t k = 0; k < rows.depth; ++k) {
    const std::uint8_t code = rows.row_codes(column)[k];
    float value = 0;
    switch (layout.format) {
      case Format::int4_group:
        value = static_cast<float>(code) - 8;
        break;
      case Format::nvfp4:  // codes of groups whose scale is zero count as zero
        value =
            rows.scale_codes[rows.group_index(column, k / group)] == 0 ? 0 : e2m1_to_float(code);
        break;
      case Format::mxfp4:
        value = e2m1_to_float(code);
        break;
      default:
        value = e4m3_to_float(code);
    }
    codes.push_back(to_bfloat16(value));
  }
  return codes;
}

/// Scales and offsets of one column for every `depth` k, which divide the groups of its layout.
std::vector<CodeGroup> column_groups(const RandomCodes& weights, std::int64_t column,
                                     std::int64_t depth) {
  const QuantizedRows& rows = weights.rows();
  const Layout& layout = weights.matrix().layout;
  const std::int64_t group = scale_group(layout, rows.depth);
  std::vector<CodeGroup> groups;
  for (std::int64_t k = 0; k < round_up(rows.depth, kStepDepth); k += depth) {
    CodeGroup result;
    if (layout.format != Format::fp8_channel && k < rows.depth) {
      const std::size_t index = rows.group_index(column, k / group);
      result.scale = layout.format == Format::nvfp4 ? e4m3_to_float(rows.scale_codes[index])
                     : has_scale_codes(layout.format)
                         ? static_cast<float>(e8m0_to_double(rows.scale_codes[index]))
                         : rows.scales[index];
      if (layout.wide_scales) {
        // Packed as the upper 24 bits, rounded to nearest even.
        const auto bits = std::bit_cast<std::uint32_t>(result.scale);
        result.scale = std::bit_cast<float>((bits + 0x7f + (bits >> 8 & 1)) & ~0xffU);
        result.offset = 8.0F - static_cast<float>(rows.zeros[index]);
      }
    }
    groups.push_back(result);
  }
  return groups;
}

}  // namespace

std::vector<Layout> quantized_layouts() {
  std::vector<Layout> layouts;
  for (const Format format : {Format::int8, Format::int4, Format::fp8_channel, Format::nvfp4,
                              Format::mxfp4, Format::mxfp8}) {
    layouts.push_back({.format = format});
  }
  for (const std::int32_t group : {32, 64, 128}) {
    for (const bool wide : {false, true}) {
      layouts.push_back({.format = Format::int4_group, .group = group, .wide_scales = wide});
    }
  }
  for (const std::int32_t group : {32, 128}) {
    layouts.push_back({.format = Format::fp8_block, .group = group});
  }
  return layouts;
}

std::string layout_name(const Layout& layout) {
  std::string name(format_name(layout.format));
  if (layout.group != 0) name += std::to_string(layout.group);
  if (layout.wide_scales) name += "wide";
  return name;
}

RandomCodes::RandomCodes(const Layout& layout, std::int64_t num_rows, std::int64_t depth,
                         std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::int64_t group = scale_group(layout, depth);
  rows_.num_rows = num_rows;
  rows_.depth = depth;
  rows_.num_groups = (depth + group - 1) / group;
  rows_.codes.resize(static_cast<std::size_t>(num_rows * depth));
  std::ranges::generate(rows_.codes, [&] { return random_code(layout.format, random); });
  fill_scales(layout, rows_, random);
  PackedMatrix& matrix = owned_.matrix;
  matrix = {.layout = layout, .rows = num_rows, .depth = depth};
  if (layout.format == Format::nvfp4) matrix.scale = 0.0123F;
  owned_.panels = Buffer<std::byte>(matrix.bytes());
  matrix.panels = owned_.panels.data();
  for (std::int64_t panel = 0; panel < matrix.num_panels(); ++panel) {
    const std::int64_t first = panel * kPanelColumns;
    pack_panel(layout, slice(rows_, first, std::min(kPanelColumns, num_rows - first)),
               owned_.panels.data() + panel * matrix.panel_stride());
  }
}

std::vector<float> quantized_values(const Layout& layout, std::span<const float> values,
                                    std::int64_t depth) {
  const std::int64_t num_rows = std::ssize(values) / depth;
  MatrixScales scales(layout, num_rows, depth);
  float matrix_scale = 1;
  if (MatrixScales::needed(layout.format)) {
    scales.add_rows(0, values);
    matrix_scale = scales.matrix_scale();
  }
  QuantizedRows rows;
  quantize_rows(layout, {.values = values, .num_rows = num_rows, .depth = depth}, &scales, rows);
  std::vector<float> result(values.size());
  dequantize_rows(layout, rows, matrix_scale, result);
  return result;
}

std::vector<BFloat16> decoded_column(const PackedMatrix& matrix, std::int64_t column) {
  std::vector<BFloat16> values;
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<BFloat16> lines(kTileBytes / 2);
    decode_step(matrix, column / kPanelColumns, step, lines.data());
    for (std::int64_t k = 0; k < kStepDepth; ++k) {
      values.push_back(
          lines[static_cast<std::size_t>(bf16_format::element_index(column % kPanelColumns, k))]);
    }
  }
  values.resize(static_cast<std::size_t>(matrix.depth));
  return values;
}

std::vector<float> dpbf16_results(const GemmCase& product, const RandomCodes& weights) {
  const Layout& layout = weights.matrix().layout;
  const std::int64_t group_depth = layout.format == Format::int4_group ? kStepDepth : 16;
  std::vector<float> results(static_cast<std::size_t>(product.num_rows * product.columns()));
  for (std::int64_t c = 0; c < product.columns(); ++c) {
    const std::vector<BFloat16> codes = column_codes(weights, c);
    const std::vector<CodeGroup> groups = column_groups(weights, c, group_depth);
    for (std::int64_t r = 0; r < product.num_rows; ++r) {
      const std::vector<BFloat16> row = product.x_bf16(r);
      const float sum = layout.format == Format::int4_group
                            ? dpbf16_parity_product(row, codes, groups)
                            : dpbf16_group_product(row, codes, group_depth, groups);
      const float scaled = sum * column_scale(weights.matrix(), c);
      const bool subnormal = std::fpclassify(scaled) == FP_SUBNORMAL;  // flushed, as all sums are
      results[static_cast<std::size_t>(r * product.columns() + c)] =
          subnormal ? std::copysign(0.0F, scaled) : scaled;
    }
  }
  return results;
}

std::vector<float> int8_group_results(const GemmCase& product, const RandomCodes& weights) {
  std::vector<float> results(static_cast<std::size_t>(product.num_rows * product.columns()));
  for (std::int64_t c = 0; c < product.columns(); ++c) {
    const std::vector<BFloat16> codes = column_codes(weights, c);
    const std::vector<CodeGroup> groups = column_groups(weights, c, 128);
    for (std::int64_t r = 0; r < product.num_rows; ++r) {
      const std::span<const float> row(product.x.data() + r * product.depth,
                                       static_cast<std::size_t>(product.depth));
      results[static_cast<std::size_t>(r * product.columns() + c)] =
          int8_group_product(row, codes, groups);
    }
  }
  return results;
}

}  // namespace moesaic
