#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace moesaic {
namespace {

TEST(DType, names_round_trip) {
  for (int i = 0; i <= static_cast<int>(DType::f64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_GE(dtype_bytes(dtype), 1);
  }
  EXPECT_FALSE(dtype_from_name("BF17").has_value());
}

TEST(BFloat16, rounds_to_nearest_even) {
  EXPECT_EQ(to_bfloat16(1.0F).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0F + 0x1p-8F).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(to_bfloat16(1.0F + 0x3p-8F).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(to_bfloat16(1.0F + 0x1.01p-8F).bits, 0x3f81);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bfloat16(-0.0F).bits, 0x8000);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Half, decodes_every_class) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0F);
  EXPECT_EQ(half_to_float(0xc000), -2.0F);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(half_to_float(0x03ff), 0x3ffp-24F);
  EXPECT_EQ(half_to_float(0x0400), 0x1p-14F);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0F);
  EXPECT_TRUE(std::isinf(half_to_float(0xfc00)));
  EXPECT_TRUE(std::isnan(half_to_float(0x7e00)));
  EXPECT_TRUE(std::signbit(half_to_float(0x8000)));
}

TEST(Narrow, throws_when_the_value_changes) {
  EXPECT_EQ(narrow<int>(std::int64_t{7}), 7);
  EXPECT_THROW((void)narrow<int>(std::int64_t{1} << 40), Error);
  EXPECT_THROW((void)narrow<unsigned>(-1), Error);
}

}  // namespace
}  // namespace moesaic
