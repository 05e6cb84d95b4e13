#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "base/error.h"
#include "kernels/formats/elements.h"
#include "kernels/weight_format.h"
#include "tests/kernels/format_case.h"
#include "tests/kernels/quantized_case.h"

namespace moesaic {
namespace {

/// A matrix's values, quantised.
struct Quantized {
  Quantized(const Layout& layout, const std::vector<float>& values, std::int64_t depth)
      : layout_(layout) {
    const std::int64_t num_rows = std::ssize(values) / depth;
    MatrixScales scales(layout, num_rows, depth);
    if (MatrixScales::needed(layout.format)) scales.add_rows(0, values);
    matrix_scale = scales.matrix_scale();
    quantize_rows(layout, {.values = values, .first_row = 0, .num_rows = num_rows, .depth = depth},
                  &scales, rows);
  }

  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> out(rows.codes.size());
    dequantize_rows(layout_, rows, matrix_scale, out);
    return out;
  }
  [[nodiscard]] int integer(std::size_t index) const {
    return static_cast<std::int8_t>(rows.codes[index]);
  }

  QuantizedRows rows;
  float matrix_scale = 1;

 private:
  Layout layout_;
};

/// With zeros, a few large values, and a row of zeros; rows differ by about `spread` powers of two.
std::vector<float> wild_values(std::int64_t num_rows, std::int64_t depth, float spread = 4) {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    const float scale = r == 2 ? 0 : std::exp2(normal(engine) * spread);
    for (std::int64_t k = 0; k < depth; ++k) {
      const float value = k % 37 == 5 ? 0 : normal(engine) * scale;
      values.push_back(k % 41 == 7 ? value * 8 : value);
    }
  }
  return values;
}

float amax(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0F,
                         [](float a, float b) { return std::max(a, std::fabs(b)); });
}

class Quantisers : public testing::TestWithParam<Layout> {
 protected:
  /// How far a value may be from its code's: half of what codes are apart there. `step` is what
  /// the smallest codes are apart.
  [[nodiscard]] static float largest_error(float value, float step) {
    const float magnitude = std::fabs(value);
    switch (GetParam().format) {
      case Format::int8:
        return step / 2;
      case Format::int4:  // rounded twice, the first time to a 16th of a step
        return step * (1.0F / 2 + 1.0F / 32);
      case Format::int4_group:  // amax / 7.5 rounded down to bf16 saturates at 7
        return step * (1.0F / 2 + 1.0F / 32);
      case Format::fp8_block:
      case Format::fp8_channel:
      case Format::mxfp8:
        return std::max(magnitude / 16, step * 0x1p-10F);
      default:
        return std::max(magnitude / 4, step / 4);
    }
  }
};

TEST_P(Quantisers, are_off_by_half_a_step_at_most) {
  const std::int64_t depth = 300;
  const std::vector<float> values = wild_values(40, depth);
  const Quantized quantized(GetParam(), values, depth);
  const std::vector<float> found = quantized.values();
  const std::int64_t group = scale_group(GetParam(), depth);
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t index = quantized.rows.group_index(i / depth, i % depth / group);
    float step = 0;
    if (GetParam().format == Format::nvfp4) {
      step = e4m3_to_float(quantized.rows.scale_codes[index]) * quantized.matrix_scale;
    } else if (quantized.rows.scales.empty()) {
      step = e8m0_to_float(quantized.rows.scale_codes[index]);
    } else {
      step = quantized.rows.scales[index];
    }
    ASSERT_LE(std::fabs(found[at] - values[at]), largest_error(values[at], step) * 1.00001F)
        << values[at] << " became " << found[at] << " with the scale " << step;
  }
}

TEST_P(Quantisers, keep_zeros) {
  const Quantized quantized(GetParam(), std::vector<float>(16 * 100), 100);
  for (const float value : quantized.values()) ASSERT_EQ(value, 0);
  const OnePanel panel(GetParam(), quantized.rows);
  EXPECT_EQ(panel.decoded(3, 99), 0);
}

TEST_P(Quantisers, keep_what_they_made) {
  // The scale of int4_group is amax / 7.5, which no code has.
  if (GetParam().format == Format::int4_group) GTEST_SKIP() << "rounds again by design";
  // Scales of nvfp4 lose bits where a row is much smaller than another.
  const std::vector<float> once = Quantized(GetParam(), wild_values(40, 200, 0.5F), 200).values();
  const std::vector<float> twice = Quantized(GetParam(), once, 200).values();
  for (std::size_t i = 0; i < once.size(); ++i) {
    ASSERT_NEAR(twice[i], once[i], std::fabs(once[i]) * 0x1p-21F) << i;
  }
}

TEST_P(Quantisers, refuse_values_that_are_not_finite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(3 * 70, 1);
    values[70 + 65] = -bad;
    try {
      const Quantized quantized(GetParam(), values, 70);
      ADD_FAILURE() << "was quantised";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::file);
      EXPECT_NE(std::string(error.what()).find("row 1, k"), std::string::npos) << error.what();
    }
  }
}

TEST_P(Quantisers, take_the_smallest_and_the_largest_floats) {
  for (const float value : {0x1p-149F, 0x1p-126F, 0x1.fp126F}) {
    const std::vector<float> found = Quantized(GetParam(), {value, -value, 0}, 3).values();
    ASSERT_TRUE(std::isfinite(found[0]));
    EXPECT_EQ(found[0] == 0, found[1] == 0);
    if (value > 1) {
      EXPECT_NEAR(found[0] / value, 1, 0.13);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Quantisers, testing::ValuesIn(quantized_layouts()),
                         [](const auto& layout) { return layout_name(layout.param); });

TEST(Quantise, int8_rounds_multiples_of_amax_by_127) {
  const std::vector<float> values = wild_values(5, 130);
  const Quantized quantized({Format::int8}, values, 130);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scale = amax(std::span(values).subspan(i / 130 * 130, 130)) / 127;
    ASSERT_EQ(quantized.rows.scales[i / 130], scale);
    const int code = scale == 0 ? 0 : static_cast<int>(std::nearbyint(values[i] / scale));
    ASSERT_EQ(quantized.integer(i), code);
  }
}

TEST(Quantise, int4_rounds_as_ktransformers_does) {
  // AMXINT4: q8 = nearest(w / (amax / 112)), of which the upper four bits are kept, halves away
  // from zero.
  const std::vector<float> values = wild_values(5, 130);
  const Quantized quantized({Format::int4}, values, 130);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scale = amax(std::span(values).subspan(i / 130 * 130, 130)) / 112;
    ASSERT_EQ(quantized.rows.scales[i / 130], scale * 16);
    if (scale == 0) continue;
    const auto integer = static_cast<int>(std::nearbyint(values[i] / scale));
    const int magnitude = ((std::abs(integer) + 8) & 0xf0) / 16;
    ASSERT_EQ(quantized.integer(i), integer < 0 ? -magnitude : magnitude);
  }
  const std::vector<float> halves = {112, 8, -8, 7.5F, 7.4F, 24, -24};
  const Quantized rounded({Format::int4}, halves, 7);
  EXPECT_EQ(rounded.rows.codes, (std::vector<std::uint8_t>{7, 1, 255, 1, 0, 2, 254}));
}

TEST(Quantise, int4_group_rounds_multiples_of_amax_by_7_and_a_half) {
  const std::vector<float> values = wild_values(5, 130);
  for (const bool wide : {false, true}) {
    const Quantized quantized({.format = Format::int4_group, .group = 64, .wide_scales = wide},
                              values, 130);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t k = i % 130 / 64 * 64;
      const std::size_t group = i / 130 * 3 + k / 64;
      const float exact =
          amax(std::span(values).subspan(i / 130 * 130 + k, std::min<std::size_t>(64, 130 - k))) /
          7.5F;
      const float scale = quantized.rows.scales[group];
      ASSERT_NEAR(scale, exact, exact * (wide ? 0x1p-16F : 0x1p-8F));
      const std::uint32_t free_bits = wide ? 0xff : 0xffff;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(scale) & free_bits, 0U);
      if (!wide) {
        ASSERT_EQ(scale, to_float(to_bfloat16(exact)));
      }
      ASSERT_EQ(quantized.rows.zeros[group], 8);
      if (scale == 0) continue;
      const float code = std::clamp(std::nearbyint(values[i] / scale), -8.0F, 7.0F);
      ASSERT_EQ(static_cast<float>(quantized.rows.codes[i]), code + 8);
    }
  }
}

TEST(Quantise, words_of_int4_group_are_those_of_compressed_tensors_for_one_parity) {
  // -8 .. -1, packed as 0x76543210 there.
  std::vector<float> values;
  for (int i = -8; i < 0; ++i) values.insert(values.end(), {static_cast<float>(i), 0});
  const Layout layout{.format = Format::int4_group, .group = 32};
  QuantizedRows rows = plain_rows(layout, 1, 16);
  for (std::size_t i = 0; i < 16; ++i) rows.codes[i] = static_cast<std::uint8_t>(values[i] + 8);
  std::uint32_t words[2];
  std::memcpy(words, OnePanel(layout, rows).bytes(), sizeof words);
  EXPECT_EQ(words[0], 0x76543210U);
  EXPECT_EQ(words[1], 0x88888888U);
}

TEST(Quantise, fp8_takes_the_largest_magnitude_of_a_block) {
  const Layout layout{.format = Format::fp8_block, .group = 32};
  std::vector<float> values(40 * 70, 1);
  values[33 * 70 + 40] = -896;  // row block 1, k block 1
  const Quantized quantized(layout, values, 70);
  for (std::int64_t r = 0; r < 40; ++r) {
    for (std::int64_t g = 0; g < 3; ++g) {
      const float scale = quantized.rows.scales[quantized.rows.group_index(r, g)];
      EXPECT_EQ(scale, r >= 32 && g == 1 ? 2 : 1.0F / 448) << r << " " << g;
    }
  }
  EXPECT_EQ(quantized.rows.row_codes(33)[40], 0xfe);
  EXPECT_EQ(quantized.rows.row_codes(33)[41], 0x30);  // a half
}

TEST(Quantise, matrix_scales_take_rows_in_any_order) {
  const std::vector<float> values = wild_values(100, 70);
  for (const Layout layout : {Layout{Format::fp8_block, 32}, Layout{Format::nvfp4}}) {
    MatrixScales whole(layout, 100, 70);
    whole.add_rows(0, values);
    MatrixScales parts(layout, 100, 70);
    for (const std::int64_t first : {80, 0, 16}) {
      const std::int64_t end = first == 0 ? 16 : first == 16 ? 80 : 100;
      parts.add_rows(first,
                     std::span(values).subspan(static_cast<std::size_t>(first * 70),
                                               static_cast<std::size_t>((end - first) * 70)));
    }
    EXPECT_EQ(parts.matrix_scale(), whole.matrix_scale());
    for (std::int64_t r = 0; r < 100; ++r)
      EXPECT_EQ(parts.block_amax(r, 40), whole.block_amax(r, 40));
  }
}

TEST(Quantise, nvfp4_gives_modelopts_bytes) {
  // Of a tensor whose largest magnitude is 2.5; bytes that ModelOpt and compressed-tensors write.
  std::vector<float> values(32);
  for (int i = 0; i < 16; ++i) {
    values[static_cast<std::size_t>(i)] = 0.1F * static_cast<float>(i) - 0.8F;
  }
  values[31] = -2.5F;
  const Quantized quantized({Format::nvfp4}, values, 32);
  EXPECT_FLOAT_EQ(quantized.matrix_scale, 9.30059527e-4F);
  EXPECT_EQ(quantized.rows.scale_codes, (std::vector<std::uint8_t>{0x71, 0x7e}));
  const std::uint8_t bytes[] = {0xff, 0xee, 0xcd, 0x9b, 0x10, 0x43, 0x65, 0x76};
  for (std::size_t i = 0; i < 8; ++i) {
    const int byte = quantized.rows.codes[2 * i] | quantized.rows.codes[2 * i + 1] << 4;
    EXPECT_EQ(byte, bytes[i]) << i;
  }
  const std::vector<float> found = quantized.values();
  EXPECT_NEAR(found[0], -0.803571F, 1e-6F);
  EXPECT_NEAR(found[7], -0.0669643F, 1e-7F);
  EXPECT_NEAR(found[15], 0.803571F, 1e-6F);
}

TEST(Quantise, nvfp4_scales_stay_within_e4m3) {
  std::vector<float> values(48);
  values[0] = 2688;
  values[16] = 1e-6F;
  const Quantized quantized({Format::nvfp4}, values, 48);
  EXPECT_EQ(quantized.matrix_scale, 1);
  EXPECT_EQ(quantized.rows.scale_codes, (std::vector<std::uint8_t>{0x7e, 1, kE4m3One}));
}

TEST(Quantise, powers_of_two_are_the_smallest_that_hold_the_largest_magnitude) {
  for (const auto& [format, largest] :
       {std::pair{Format::mxfp4, kLargestE2m1}, std::pair{Format::mxfp8, kLargestE4m3}}) {
    for (const int exponent : {-100, -3, 0, 60}) {
      const float edge = std::ldexp(largest, exponent);
      for (const float value : {edge, std::nextafter(edge, 0.0F), std::nextafter(edge, 1e38F)}) {
        const Quantized quantized({format}, {0, value, -value / 2}, 3);
        EXPECT_EQ(quantized.rows.scale_codes[0], exponent + 127 + (value > edge ? 1 : 0)) << value;
      }
    }
  }
}

}  // namespace
}  // namespace moesaic
