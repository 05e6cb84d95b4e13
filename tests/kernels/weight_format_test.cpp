#include "kernels/weight_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/elements.h"
#include "kernels/formats/int4.h"
#include "kernels/formats/int8.h"
#include "tests/kernels/format_case.h"
#include "tests/kernels/quantized_case.h"

namespace moesaic {
namespace {

constexpr std::int64_t kEncodedDepths[] = {1, 15, 16, 17, 31, 32, 33, 64, 65, 129, 300};

/// What kernels multiply by, from what a code and its scale stand for.
float kernel_value(Format format, float value) {
  if (std::fabs(value) < 0x1p-126F) return 0;
  const bool is_rounded = format == Format::int4_group || format == Format::fp8_block;
  return is_rounded ? to_float(to_bfloat16(value)) : value;
}

void expect_decodes(const Layout& layout, const QuantizedRows& rows, float matrix_scale = 1) {
  const OnePanel panel(layout, rows, matrix_scale);
  std::vector<float> values(rows.codes.size());
  dequantize_rows(layout, rows, matrix_scale, values);
  for (std::int64_t k = 0; k < round_up(rows.depth, step_depth(layout.format)); ++k) {
    for (std::int64_t c = 0; c < kPanelColumns; ++c) {
      const bool exists = c < rows.num_rows && k < rows.depth;
      const float value =
          exists ? kernel_value(layout.format, values[static_cast<std::size_t>(c * rows.depth + k)])
                 : 0;
      ASSERT_EQ(panel.decoded(c, k) * column_scale(panel.matrix(), c), value)
          << layout_name(layout) << ", row " << c << " of " << rows.num_rows << ", k " << k
          << " of " << rows.depth;
    }
  }
}

class EveryLayout : public testing::TestWithParam<Layout> {};

TEST_P(EveryLayout, decodes_what_was_packed) {
  RandomRows random(GetParam(), 1);
  for (const std::int64_t depth : kEncodedDepths) {
    for (const std::int64_t num_rows : {1, 15, 16})
      expect_decodes(GetParam(), random.draw(num_rows, depth));
  }
}

TEST_P(EveryLayout, panel_of_no_rows_is_zero) {
  expect_decodes(GetParam(), plain_rows(GetParam(), 0, 70));
}

TEST_P(EveryLayout, scale_that_is_no_number_is_refused) {
  if (!plain_rows(GetParam(), 1, 1).scales.empty()) {
    QuantizedRows rows = plain_rows(GetParam(), 16, 40);
    std::ranges::fill(rows.scales, std::nanf(""));
    EXPECT_THROW((OnePanel(GetParam(), rows)), Error);
    std::ranges::fill(rows.scales, INFINITY);
    EXPECT_THROW((OnePanel(GetParam(), rows)), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryLayout, testing::ValuesIn(quantized_layouts()),
                         [](const auto& layout) { return layout_name(layout.param); });

TEST(WeightFormat, matrix_scale_multiplies_results) {
  const Layout layout{.format = Format::nvfp4};
  expect_decodes(layout, RandomRows(layout, 2).draw(16, 64), 0.0123F);
}

TEST(WeightFormat, integer_panels_end_with_128_times_the_sums_of_what_kernels_multiply_by) {
  for (const Format format : {Format::int8, Format::int4}) {
    const QuantizedRows rows = RandomRows({.format = format}, 3).draw(15, 100);
    const OnePanel panel({.format = format}, rows);
    const std::int64_t offset = format == Format::int8 ? int8_format::offsets_offset(100)
                                                       : int4_format::offsets_offset(100);
    for (std::int64_t r = 0; r < kPanelColumns; ++r) {
      std::int32_t expected = 0;
      for (std::int64_t k = 0; r < 15 && k < 100; ++k) {
        expected += static_cast<std::int8_t>(rows.row_codes(r)[k]);
      }
      std::int32_t found;
      std::memcpy(&found, panel.bytes() + offset + r * 4, sizeof found);
      EXPECT_EQ(found, expected * (format == Format::int8 ? 128 : 128 * 16)) << "row " << r;
    }
  }
}

TEST(WeightFormat, subnormal_values_are_zeros) {
  for (const Format format : {Format::mxfp4, Format::mxfp8}) {
    for (std::uint8_t scale = 0; scale < 12; ++scale) {
      QuantizedRows rows = plain_rows({.format = format}, 16, 8);
      std::ranges::fill(rows.scale_codes, scale);
      for (std::size_t i = 0; i < rows.codes.size(); ++i) {
        rows.codes[i] = static_cast<std::uint8_t>(format == Format::mxfp4 ? i % 16 : i % 0x7f);
      }
      expect_decodes({.format = format}, rows);
    }
  }
}

TEST(WeightFormat, zeros_of_powers_of_two_have_no_sign) {
  for (const auto& [format, minus_zero] :
       {std::pair{Format::mxfp4, 8}, std::pair{Format::nvfp4, 8}, std::pair{Format::mxfp8, 0x80}}) {
    QuantizedRows rows = plain_rows({.format = format}, 1, 1);
    rows.codes[0] = static_cast<std::uint8_t>(minus_zero);
    EXPECT_FALSE(std::signbit(OnePanel({.format = format}, rows).decoded(0, 0)));
  }
}

TEST(WeightFormat, scales_below_the_smallest_normal_float_are_zeros) {
  for (const Layout layout : {Layout{Format::fp8_block, 32}, Layout{Format::int4_group, 32},
                              Layout{Format::int4_group, 32, true}}) {
    QuantizedRows rows = plain_rows(layout, 1, 1);
    rows.codes[0] = 15;
    rows.scales[0] = 0x1p-127F;
    EXPECT_EQ(OnePanel(layout, rows).decoded(0, 0), 0);
  }
}

/// The message of the Error of `kind` that packing gives.
std::string refusal(const Layout& layout, const QuantizedRows& rows, ErrorKind kind) {
  try {
    OnePanel(layout, rows);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << layout_name(layout) << " was packed";
  return {};
}

void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << message << "\nlacks " << word;
  }
}

TEST(WeightFormat, codes_that_are_no_numbers_are_refused) {
  for (const Layout layout :
       {Layout{Format::fp8_block, 128}, Layout{Format::fp8_channel}, Layout{Format::mxfp8}}) {
    for (const std::uint8_t nan : {0x7f, 0xff}) {
      QuantizedRows rows = plain_rows(layout, 5, 40);
      code_at(rows, 3, 37) = nan;
      expect_words(refusal(layout, rows, ErrorKind::file), {"row 3", "k 37", "e4m3"});
    }
  }
}

TEST(WeightFormat, scale_codes_that_are_no_numbers_are_refused) {
  for (const auto& [format, nan] :
       {std::pair{Format::nvfp4, 0x7f}, std::pair{Format::nvfp4, 0xff},
        std::pair{Format::mxfp4, 0xff}, std::pair{Format::mxfp8, 0xff}}) {
    QuantizedRows rows = plain_rows({.format = format}, 5, 64);  // whose codes are all zero
    rows.scale_codes[rows.group_index(2, rows.num_groups - 1)] = static_cast<std::uint8_t>(nan);
    const char* const k = format == Format::nvfp4 ? "k 48" : "k 32";
    expect_words(refusal({.format = format}, rows, ErrorKind::file), {"row 2", k, "scale"});
  }
}

/// The code of one element, and the scale of its group: a float or a code.
struct Extreme {
  std::uint8_t code;
  float scale;
};

QuantizedRows rows_with(const Layout& layout, const Extreme& extreme) {
  QuantizedRows rows = plain_rows(layout, 2, 40);
  if (layout.format == Format::int4_group) std::ranges::fill(rows.codes, std::uint8_t{8});
  for (std::int64_t r = 0; r < 2; ++r) {
    const std::size_t last = rows.group_index(r, rows.num_groups - 1);
    if (rows.scales.empty()) {
      rows.scale_codes[last] = static_cast<std::uint8_t>(extreme.scale);
    } else {
      rows.scales[last] = extreme.scale;
    }
  }
  code_at(rows, 1, 39) = extreme.code;
  return rows;
}

TEST(WeightFormat, values_beyond_bf16_are_refused) {
  struct Case {
    Layout layout;
    Extreme legal;
    Extreme beyond;
  };
  const Case cases[] = {
      {{.format = Format::mxfp4}, {7, 252}, {7, 253}},
      {{.format = Format::mxfp4}, {3, 254}, {4, 254}},
      {{.format = Format::mxfp8}, {0x7e, 246}, {0x7e, 247}},
      {{.format = Format::mxfp8}, {0x3f, 254}, {0x40, 254}},
      {{.format = Format::fp8_block, .group = 32}, {0x7e, 0x1.2p119F}, {0x7e, 0x1.26p119F}},
      {{.format = Format::int4_group, .group = 32}, {0, 0x1.fep124F}, {0, 0x1p125F}},
      {{.format = Format::int4_group, .group = 32}, {9, 0x1p125F}, {16 - 1, 0x1p126F}},
  };
  for (const Case& at : cases) {
    expect_decodes(at.layout, rows_with(at.layout, at.legal));
    expect_words(refusal(at.layout, rows_with(at.layout, at.beyond), ErrorKind::file),
                 {"row 1", "k 3", "beyond"});
  }
}

TEST(WeightFormat, rows_of_an_fp8_panel_have_to_share_their_scales) {
  const Layout layout{.format = Format::fp8_block, .group = 32};
  QuantizedRows rows = plain_rows(layout, 16, 64);
  rows.scales[rows.group_index(9, 1)] = 2;
  expect_words(refusal(layout, rows, ErrorKind::internal), {"9", "k 32"});
}

TEST(WeightFormat, compact_scales_are_bf16_and_have_no_zero_points) {
  const Layout layout{.format = Format::int4_group, .group = 64};
  QuantizedRows rows = plain_rows(layout, 2, 64);
  rows.scales[1] = 1.001F;
  expect_words(refusal(layout, rows, ErrorKind::internal), {"row 1", "compact"});
  rows.scales[1] = 1;
  rows.zeros[1] = 7;
  expect_words(refusal(layout, rows, ErrorKind::internal), {"row 1", "compact"});
}

TEST(WeightFormat, wide_scales_keep_16_bits) {
  const Layout layout{.format = Format::int4_group, .group = 32, .wide_scales = true};
  QuantizedRows rows = plain_rows(layout, 2, 1);
  rows.codes = {9, 9};
  rows.scales = {0x1.00fep0F, 0x1.0101p0F};  // the second is half way to 0x1.0102p0
  const OnePanel panel(layout, rows);
  EXPECT_EQ(panel.decoded(0, 0), to_float(to_bfloat16(0x1.00fep0F)));
  std::uint32_t word;
  std::memcpy(&word, panel.bytes() + 256 + 4, sizeof word);
  EXPECT_EQ(word, (std::bit_cast<std::uint32_t>(0x1.01p0F) & 0xffffff00U) | 8U);
}

TEST(WeightFormat, layouts_exist_with_groups_and_scales_of_their_formats) {
  for (const Layout& layout : quantized_layouts()) EXPECT_TRUE(layout_exists(layout));
  for (const Layout& layout :
       {Layout{Format::int4_group, 0}, Layout{Format::int4_group, 16},
        Layout{Format::fp8_block, 64}, Layout{Format::nvfp4, 16},
        Layout{Format::fp8_block, 32, true}, Layout{Format::int8, 0, true}}) {
    EXPECT_FALSE(layout_exists(layout)) << layout_name(layout);
  }
}

TEST(WeightFormat, names) {
  for (int i = 0; i < kNumFormats; ++i) {
    const auto format = static_cast<Format>(i);
    EXPECT_EQ(format_from_name(format_name(format)), format);
  }
  EXPECT_EQ(format_name(Format::f32), "f32");
  EXPECT_EQ(format_name(Format::bf16), "bf16");
  EXPECT_EQ(format_name(Format::int4_group), "int4_group");
  EXPECT_EQ(format_name(Format::mxfp8), "mxfp8");
  EXPECT_FALSE(format_from_name("NVFP4").has_value());
  EXPECT_FALSE(format_from_name("").has_value());
}

TEST(WeightFormat, panels_are_whole_cache_lines_of_the_promised_size) {
  for (const Layout& layout : quantized_layouts()) {
    for (const std::int64_t depth : kEncodedDepths) EXPECT_EQ(panel_bytes(layout, depth) % 64, 0);
  }
  const auto bits = [](const Layout& layout, std::int64_t depth) {
    return static_cast<double>(panel_bytes(layout, depth)) * 8 / static_cast<double>(16 * depth);
  };
  for (const std::int64_t depth : {64, 128, 768, 7168}) {
    EXPECT_EQ(bits({Format::nvfp4}, depth), 4.5);
    EXPECT_LE(bits({Format::int4}, 7168), 4.01);
  }
  EXPECT_EQ(bits({Format::mxfp4}, 2048), 4.25);
  EXPECT_EQ(bits({Format::mxfp8}, 2048), 8.25);
  EXPECT_EQ(bits({Format::int4_group, 32}, 2048), 4.5);
  EXPECT_EQ(bits({Format::int4_group, 128, true}, 2048), 4.25);
  EXPECT_LE(bits({Format::fp8_block, 128}, 7168), 8.02);
}

}  // namespace
}  // namespace moesaic
