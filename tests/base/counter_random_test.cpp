#include "base/counter_random.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

// What is drawn stands in files and in what models generate: it must stay as it is.
TEST(CounterRandom, is_splitmix_over_the_parts_of_its_key) {
  EXPECT_EQ(CounterRandom(0).bits(0), 0xe220a8397b1dcdafU) << "SplitMix64's first number for 0";
  EXPECT_EQ(CounterRandom(7).bits(3), 0xab842222742ff283U);
  EXPECT_EQ(CounterRandom(7).at(5).bits(3), 0xce97b9891bb48057U);
}

TEST(CounterRandom, units_are_multiples_of_2_to_the_minus_53_below_1) {
  const CounterRandom random(11);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(random.unit(i) * 0x1p53, static_cast<double>(random.bits(i) >> 11U));
    EXPECT_LT(random.unit(i), 1);
  }
}

}  // namespace
}  // namespace moesaic
