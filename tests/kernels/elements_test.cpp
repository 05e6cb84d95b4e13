#include "kernels/formats/elements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace moesaic {
namespace {

/// The value of a code by the words of its standard.
double value_of(unsigned code, int mantissa_bits, int bias) {
  const int exponent = static_cast<int>(code >> mantissa_bits);
  const double fraction =
      std::ldexp(static_cast<double>(code & ((1U << mantissa_bits) - 1)), -mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}

TEST(Elements, every_e2m1_code_has_its_value) {
  const float magnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(e2m1_to_float(code), magnitudes[code]);
    EXPECT_EQ(e2m1_to_float(code | 8), -magnitudes[code]);
    EXPECT_TRUE(std::signbit(e2m1_to_float(code | 8)));
  }
}

TEST(Elements, every_e4m3_code_has_its_value) {
  for (unsigned code = 0; code < 0x7f; ++code) {
    const auto expected = static_cast<float>(value_of(code, 3, 7));
    EXPECT_EQ(e4m3_to_float(static_cast<std::uint8_t>(code)), expected);
    EXPECT_EQ(e4m3_to_float(static_cast<std::uint8_t>(code | 0x80)), -expected);
    EXPECT_FALSE(is_e4m3_nan(static_cast<std::uint8_t>(code)));
  }
  EXPECT_EQ(e4m3_to_float(1), 0x1p-9F);
  EXPECT_EQ(e4m3_to_float(kE4m3One), 1);
  EXPECT_EQ(e4m3_to_float(0x7e), kLargestE4m3);
  for (const std::uint8_t nan : {0x7f, 0xff}) {
    EXPECT_TRUE(is_e4m3_nan(nan));
    EXPECT_TRUE(std::isnan(e4m3_to_float(nan)));
  }
}

TEST(Elements, every_e8m0_code_has_its_value) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_to_float(static_cast<std::uint8_t>(code)), std::ldexp(1.0F, code - 127));
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(kE8m0Nan)));
}

/// The code whose value is nearest, the even one of two: by looking at all of them.
unsigned nearest_by_search(double magnitude, const std::vector<double>& values) {
  unsigned best = 0;
  for (unsigned code = 1; code < values.size(); ++code) {
    const double distance = std::fabs(values[code] - magnitude);
    const double least = std::fabs(values[best] - magnitude);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best;
}

/// All codes' values, the points half way between them, and what is next to those.
std::vector<float> magnitudes_around(const std::vector<double>& values) {
  std::vector<float> magnitudes = {0x1p-149F, 0x1p-126F, 0x1.fffffep127F};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double next = i + 1 < values.size() ? values[i + 1] : values[i] * 2;
    for (const double value : {values[i], (values[i] + next) / 2}) {
      const auto center = static_cast<float>(value);
      magnitudes.push_back(center);
      magnitudes.push_back(std::nextafter(center, 1e30F));
      if (center > 0) magnitudes.push_back(std::nextafter(center, 0.0F));
    }
  }
  return magnitudes;
}

template <typename Encode>
void expect_nearest(int mantissa_bits, int bias, unsigned last, const Encode& encode) {
  std::vector<double> values;
  for (unsigned code = 0; code <= last; ++code)
    values.push_back(value_of(code, mantissa_bits, bias));
  std::vector<float> magnitudes = magnitudes_around(values);
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> exponent(-14, 10);
  for (int i = 0; i < 20000; ++i) magnitudes.push_back(std::exp2(exponent(engine)));
  const unsigned sign = std::bit_ceil(last);
  for (const float magnitude : magnitudes) {
    const double below_infinity = std::min(static_cast<double>(magnitude), 2 * values.back());
    const unsigned expected = nearest_by_search(below_infinity, values);
    ASSERT_EQ(encode(magnitude), expected) << magnitude;
    ASSERT_EQ(encode(-magnitude), expected | sign) << magnitude;
  }
}

TEST(Elements, nearest_e2m1_takes_even_codes_at_ties_and_saturates) {
  expect_nearest(1, 1, 7, nearest_e2m1);
}

TEST(Elements, nearest_e4m3_takes_even_codes_at_ties_and_saturates) {
  expect_nearest(3, 7, 0x7e, nearest_e4m3);
}

TEST(Elements, e8m0_not_below_gives_the_smallest_power_of_two) {
  EXPECT_EQ(e8m0_not_below(0), 0);
  EXPECT_EQ(e8m0_not_below(0x1p-149F), 0);
  EXPECT_EQ(e8m0_not_below(0x1.8p-127F), 1);
  for (int exponent = -127; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0F, exponent);
    EXPECT_EQ(e8m0_not_below(power), exponent + 127);
    EXPECT_EQ(e8m0_not_below(std::nextafter(power, 0.0F)), exponent + 127);
    if (exponent == 127) break;
    EXPECT_EQ(e8m0_not_below(std::nextafter(power, 1e38F)), exponent + 128);
  }
}

}  // namespace
}  // namespace moesaic
