#include "src/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace moesaic {
namespace {

std::vector<double> rates(RateSchedule schedule) {
  const LearningRate rate{.peak = 1, .schedule = schedule, .warmup_steps = 3, .total_steps = 11};
  std::vector<double> rates;
  for (std::int64_t step = 0; step < 12; ++step) rates.push_back(rate.at(step));
  return rates;
}

void expect_near(const std::vector<double>& rates, const std::vector<double>& expected) {
  ASSERT_EQ(rates.size(), expected.size());
  for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-15) << i;
}

// transformers 4.57.3: get_*_schedule_with_warmup(optimizer, 3, 11) with a rate of 1.
TEST(Schedule, CosineIsThatOfTransformers) {
  expect_near(rates(RateSchedule::cosine),
              {0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 0.9619397662556434,
               0.8535533905932737, 0.6913417161825449, 0.5, 0.30865828381745514,
               0.14644660940672627, 0.03806023374435663, 0.0});
}

TEST(Schedule, CosineIsRightToTheLastBits) {
  constexpr std::int64_t kSteps = 10007;
  const LearningRate rate{.peak = 2, .total_steps = kSteps};
  for (std::int64_t step = 0; step <= kSteps; ++step) {
    const double progress = static_cast<double>(step) / kSteps;
    EXPECT_NEAR(rate.at(step), 1 + std::cos(std::numbers::pi * progress), 5e-16) << step;
  }
}

TEST(Schedule, LinearIsThatOfTransformers) {
  expect_near(rates(RateSchedule::linear), {0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 0.875,
                                            0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0});
}

TEST(Schedule, ConstantStaysAfterItHasRisen) {
  expect_near(rates(RateSchedule::constant),
              {0.0, 0.3333333333333333, 0.6666666666666666, 1, 1, 1, 1, 1, 1, 1, 1, 1});
}

TEST(Schedule, WithoutRiseTheFirstStepHasThePeak) {
  const LearningRate rate{.peak = 0.5, .total_steps = 4};
  EXPECT_EQ(rate.at(0), 0.5);
}

}  // namespace
}  // namespace moesaic
