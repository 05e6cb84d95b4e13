// Rates of a study: what is fitted to points, and how near it tells others.

#include "launch/study/study_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/study/nonnegative_fit.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

TEST(NonnegativeFit, LeavesOutTermsThatWouldBeNegative) {
  const std::vector<double> exact =
      fit_nonnegative({.amounts = {{1, 0}, {0, 1}, {1, 1}, {2, 1}}, .seconds = {2, 3, 5, 7}});
  EXPECT_NEAR(exact[0], 2, 1e-12);
  EXPECT_NEAR(exact[1], 3, 1e-12);
  // Times that fall while the first term grows: the second alone. (x/3-1)^2+(x/2-1)^2+(x-1)^2 is
  // least at x = (11/6) / (49/36).
  const std::vector<double> rates =
      fit_nonnegative({.amounts = {{1, 1}, {2, 1}, {3, 1}}, .seconds = {3, 2, 1}});
  EXPECT_EQ(rates[0], 0);
  EXPECT_NEAR(rates[1], 66.0 / 49, 1e-12);
}

// Both terms always grow together: any share of the time for either would do.
TEST(NonnegativeFit, WhatIsUsualDecidesWhatTimesDoNotTell) {
  const FitSamples together{.amounts = {{1, 3, 0}, {2, 6, 0}, {4, 12, 0}}, .seconds = {2, 4, 8}};
  const std::vector<double> rates =
      fit_nonnegative(together, {.seconds = {0.1, 0.3, 7}, .num_computing = 2});
  EXPECT_NEAR(rates[0], 0.2, 1e-9);
  EXPECT_NEAR(rates[1], 0.6, 1e-9);
  EXPECT_NEAR(rates[2], 7, 1e-9) << "no sample has it";
  // What times do tell stands, however unusual.
  const FitSamples apart{.amounts = {{1, 0}, {0, 1}, {1, 1}}, .seconds = {2, 30, 32}};
  const std::vector<double> told = fit_nonnegative(apart, {.seconds = {1, 1}, .num_computing = 2});
  EXPECT_NEAR(told[0], 2, 0.06);
  EXPECT_NEAR(told[1], 30, 1);
  const std::vector<double> slow = fit_nonnegative(apart, {.seconds = {0, 1}});
  EXPECT_NEAR(slow[1], 30, 0.03);
}

/// Times that are made of known rates, with repetitions a little above and below.
std::vector<FitPoint> known_points() {
  std::vector<FitPoint> points;
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    for (const double batch : {1.0, 2.0, 4.0}) {
      const auto n = static_cast<double>(ranks);
      const std::vector<double> amounts = {1e9 * batch / n, ranks > 1 ? 100 * n : 0, 1};
      const double seconds = told_seconds(amounts, {2e-11, 1e-5, 1e-3});
      points.push_back({ranks, amounts, {}, {0.99 * seconds, seconds, 1.01 * seconds}});
    }
  }
  return points;
}

TEST(StudyFit, FindsRatesAndTellsWhatItDidNotSee) {
  const StudyFit fit(known_points());
  EXPECT_NEAR(fit.rate(0).value, 2e-11, 1e-15);
  EXPECT_NEAR(fit.rate(1).value, 1e-5, 1e-9);
  EXPECT_LE(fit.rate(1).low, 1e-5);
  EXPECT_GE(fit.rate(1).high, 1e-5);
  EXPECT_LT(std::ranges::max(fit.leave_one_out()), 1e-6);
  EXPECT_LT(fit.leave_largest_out(), 1e-6);
  const std::vector<double> more = {4e9 / 64, 6400, 1};
  const WithInterval told = fit.predict(more, {});
  EXPECT_NEAR(told.value, told_seconds(more, {2e-11, 1e-5, 1e-3}), 1e-6);
  EXPECT_LT(told.high - told.low, 0.1 * told.value);
  EXPECT_GT(told.high, told.low);
  EXPECT_NE(test::error_message([] { (void)StudyFit({known_points()[0]}); }, ErrorKind::usage)
                .find("too few"),
            std::string::npos);
}

TEST(StudyFit, FindsRatesOfWhatGoesOnAtTheSameTime) {
  const TermOverlap overlap{.num_computing = 1, .first_link = 1, .num_links = 1};
  const auto seconds = [](double compute, double transfer) {
    const double both = std::cbrt(std::pow(compute, 3) + std::pow(transfer, 3));
    return compute > 0 && transfer > 0 ? both : compute + transfer;
  };
  std::vector<FitPoint> points;
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    for (const double batch : {1.0, 2.0, 4.0}) {
      const auto n = static_cast<double>(ranks);
      const std::vector<double> amounts = {1e9 * batch / n, ranks > 1 ? 400 * n : 0, 1};
      const double taken = seconds(amounts[0] * 2e-11, amounts[1] * 1e-5) + 1e-3;
      points.push_back({ranks, amounts, ranks > 1 ? overlap : TermOverlap{}, {taken}});
    }
  }
  const StudyFit fit(points, {}, 0);
  EXPECT_NEAR(fit.rate(0).value, 2e-11, 1e-14);
  EXPECT_NEAR(fit.rate(1).value, 1e-5, 1e-8);
  EXPECT_LT(std::ranges::max(fit.leave_one_out()), 1e-2);
  const double told = fit.predict({1e9, 2000, 1}, overlap).value;
  EXPECT_NEAR(told, seconds(2e-2, 2e-2) + 1e-3, 1e-4);
  EXPECT_NEAR(told, 1.26 * 2e-2 + 1e-3, 3e-4);
}

}  // namespace
}  // namespace moesaic
