#include "src/train/loss_sum.h"

#include <gtest/gtest.h>

#include <limits>

namespace moesaic {
namespace {

TEST(LossSum, OfLargeLossesIsRight) {
  LossSum sum;
  for (int i = 0; i < 1024; ++i) ASSERT_TRUE(sum.add(0x1p26 - 1));
  EXPECT_EQ(sum.value(), 1024 * (0x1p26 - 1));
}

TEST(LossSum, DoesNotDependOnTheOrder) {
  LossSum up;
  LossSum down;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(up.add(0.1 * i - 3));
    ASSERT_TRUE(down.add(0.1 * (99 - i) - 3));
  }
  EXPECT_EQ(up.value(), down.value());
  EXPECT_NEAR(up.value(), 195, 1e-8);
}

TEST(LossSum, TakesNoLossThatIsNoNumber) {
  LossSum sum;
  EXPECT_FALSE(sum.add(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(sum.add(-std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(sum.add(LossSum::kLargest));
  EXPECT_EQ(sum.value(), 0);
}

}  // namespace
}  // namespace moesaic
