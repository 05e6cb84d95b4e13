#include "src/train/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace moesaic {
namespace {

std::vector<std::int64_t> epoch(SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < order.steps_per_epoch(); ++i) {
    const auto step = order.step(epoch * order.steps_per_epoch() + i);
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

TEST(SampleOrder, EveryEpochHasEachSampleOnceInAnotherOrder) {
  SampleOrder order({.samples = 103, .batch = 8, .seed = 7});
  EXPECT_EQ(order.steps_per_epoch(), 13);
  EXPECT_EQ(order.step(0).size(), 8U);
  EXPECT_EQ(order.step(12).size(), 7U);
  const std::vector<std::int64_t> first = epoch(order, 0);
  const std::vector<std::int64_t> second = epoch(order, 1);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 103U);
  EXPECT_EQ(std::set(second.begin(), second.end()).size(), 103U);
  EXPECT_EQ(first.size(), 103U);
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::ranges::is_sorted(first));
}

TEST(SampleOrder, AStepDependsOnItsNumberAloneNotOnThoseAskedBefore) {
  SampleOrder all({.samples = 50, .batch = 4, .seed = 3});
  for (std::int64_t step = 0; step < 30; ++step) {
    SampleOrder one({.samples = 50, .batch = 4, .seed = 3});
    EXPECT_EQ(one.step(step), all.step(step));
  }
  SampleOrder other({.samples = 50, .batch = 4, .seed = 4});
  EXPECT_NE(other.step(0), all.step(0));
}

TEST(SampleOrder, WithoutShufflingItIsThatOfTheFile) {
  SampleOrder order({.samples = 5, .batch = 3, .shuffle = false});
  EXPECT_EQ(order.step(0), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(order.step(1), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(order.step(2), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(SampleOrder, HeldOutSamplesAreNotTrained) {
  const HeldOut split = hold_out(20, 6, 1);
  EXPECT_EQ(split.held_out.size(), 6U);
  std::set<std::int64_t> all(split.held_out.begin(), split.held_out.end());
  all.insert(split.trained.begin(), split.trained.end());
  EXPECT_EQ(all.size(), 20U);
  EXPECT_TRUE(std::ranges::is_sorted(split.trained));
  EXPECT_NE(hold_out(20, 6, 2).held_out, split.held_out);
}

TEST(SampleOrder, AShareIsThatOfTheDecimalNumber) {
  EXPECT_EQ(count_of_share(0.29, 100), 29);
  EXPECT_EQ(count_of_share(0.57, 100), 57);
  EXPECT_EQ(count_of_share(0.58, 100), 58);
  EXPECT_EQ(count_of_share(0.1, 85), 8) << "rounded down";
  EXPECT_EQ(steps_of_epochs(0.07, 100), 7);
  EXPECT_EQ(steps_of_epochs(0.071, 100), 8) << "rounded up";
  EXPECT_EQ(steps_of_epochs(3, 10), 30);
  EXPECT_EQ(count_of_share(0.999999, 1000), 999);
  EXPECT_EQ(count_of_share(0.001, 999), 0);
  for (std::int64_t samples : {100, 200, 7'000, 123'456'700}) {
    for (int percent = 0; percent < 100; ++percent) {
      EXPECT_EQ(count_of_share(percent / 100.0, samples), samples / 100 * percent)
          << percent << " % of " << samples;
    }
  }
}

}  // namespace
}  // namespace moesaic
