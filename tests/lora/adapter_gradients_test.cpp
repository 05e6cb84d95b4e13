#include "src/lora/adapter_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "kernels/kernel_table.h"

namespace moesaic {
namespace {

/// Two adapters of rank 2 for 3 inputs and 4 outputs, the second with the first one's A.
std::vector<AdapterPlace> shared_places() {
  const FactorPlace a{.first = 0, .rows = 2, .cols = 3};
  return {{.a = a, .b = {.first = 6, .rows = 4, .cols = 2}},
          {.a = a, .b = {.first = 14, .rows = 4, .cols = 2}}};
}

MatrixView<const float> matrix(const std::vector<float>& values, std::int64_t cols) {
  return {values.data(), std::ssize(values) / cols, cols};
}

TEST(AdapterGradients, sums_have_the_same_bits_in_any_order) {
  std::mt19937 random(5);
  std::lognormal_distribution<float> size(-3, 6);
  std::vector<std::vector<float>> samples(200, std::vector<float>(6));
  std::vector<long double> exact(6);
  for (auto& sample : samples) {
    for (std::size_t i = 0; i < sample.size(); ++i) {
      sample[i] = (random() % 2 == 0 ? 1.0F : -1.0F) * std::min(size(random), 100.0F);
      exact[i] += sample[i];
    }
  }
  AdapterGradients forward(shared_places(), find_vector_kernels(supported_isas().back()));
  AdapterGradients backward(shared_places(), find_vector_kernels(supported_isas().back()));
  for (const auto& sample : samples) forward.add(0, Factor::a, matrix(sample, 3));
  std::ranges::reverse(samples);
  for (const auto& sample : samples) backward.add(0, Factor::a, matrix(sample, 3));
  EXPECT_TRUE(std::ranges::equal(forward.sums(), backward.sums()));
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const long double sum = AdapterGradients::value(forward.sums()[i]);
    EXPECT_NEAR(static_cast<double>(sum - exact[i]), 0, 200 * AdapterGradients::kUnit);
  }
}

TEST(AdapterGradients, some_rows_of_a_factor_are_added_to_these) {
  AdapterGradients gradients(shared_places(), find_vector_kernels(supported_isas().back()));
  gradients.add(1, Factor::b, matrix({1, 2, 3, 4}, 2), 1);
  std::vector<double> sums;
  for (const std::int64_t sum : gradients.sums()) sums.push_back(AdapterGradients::value(sum));
  std::vector<double> expected(22);
  std::iota(expected.begin() + 16, expected.begin() + 20, 1.0);
  EXPECT_EQ(sums, expected);
  EXPECT_THROW(gradients.add(1, Factor::b, matrix({1, 2, 3, 4}, 2), 3), Error);
}

TEST(AdapterGradients, rounds_to_the_nearest_unit) {
  AdapterGradients gradients(shared_places(), find_vector_kernels(supported_isas().back()));
  const auto unit = static_cast<float>(AdapterGradients::kUnit);
  const std::vector<float> values = {0.49F * unit,  0.5F * unit, -0.5F * unit,
                                     -0.49F * unit, 1.0F,        -AdapterGradients::kLimit / 2};
  gradients.add(0, Factor::a, matrix(values, 3));
  const std::vector<std::int64_t> expected = {
      0, 1, -1, 0, std::int64_t{1} << 44, -(std::int64_t{1} << 61)};
  EXPECT_TRUE(std::ranges::equal(gradients.sums().first(6), expected));
}

TEST(AdapterGradients, the_unit_is_the_same_part_of_a_mean) {
  EXPECT_EQ(AdapterGradients::unit_of(0), AdapterGradients::kUnit);
  EXPECT_EQ(AdapterGradients::unit_of(64), AdapterGradients::kUnit);
  EXPECT_EQ(AdapterGradients::unit_of(65), 2 * AdapterGradients::kUnit);
  EXPECT_EQ(AdapterGradients::unit_of(1 << 20), 0x1p14 * AdapterGradients::kUnit);
  // A million tokens whose mean is 1000 in one element, from each of 1024 ranks.
  ThreadPool pool(1);
  AdapterGradients gradients(shared_places(), find_vector_kernels(supported_isas().back()));
  gradients.clear(pool, AdapterGradients::unit_of(1 << 20));
  const std::vector<float> sample(6, 1024.0F * 1000);
  gradients.add(0, Factor::a, matrix(sample, 3));
  EXPECT_TRUE(gradients.is_finite(0));
  EXPECT_EQ(static_cast<double>(gradients.sums()[0]) * gradients.unit(), 1024.0 * 1000);
  EXPECT_FALSE(gradients.any_beyond(gradients.places()[0].a, (std::int64_t{1} << 62) / 1024));
}

TEST(AdapterGradients, adapters_with_one_A_add_to_the_same_sums) {
  ThreadPool pool(2);
  AdapterGradients gradients(shared_places(), find_vector_kernels(supported_isas().back()));
  EXPECT_EQ(gradients.sums().size(), 22U);
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b = {1, 2, 3, 4, 5, 6, 7, 8};
  gradients.add(0, Factor::a, matrix(a, 3));
  gradients.add(1, Factor::a, matrix(a, 3));
  gradients.add(1, Factor::b, matrix(b, 2));
  EXPECT_EQ(AdapterGradients::value(gradients.sums()[5]), 12);
  EXPECT_EQ(AdapterGradients::value(gradients.sums()[6]), 0);
  EXPECT_EQ(AdapterGradients::value(gradients.sums()[21]), 8);
  EXPECT_FALSE(gradients.touched(0, Factor::b));
  EXPECT_TRUE(gradients.touched(1, Factor::b));
  gradients.clear(pool);
  EXPECT_FALSE(gradients.touched(1, Factor::b));
  EXPECT_TRUE(std::ranges::all_of(gradients.sums(), [](std::int64_t sum) { return sum == 0; }));
}

TEST(AdapterGradients, says_what_is_not_finite) {
  ThreadPool pool(2);
  AdapterGradients gradients(shared_places(), find_vector_kernels(supported_isas().back()));
  std::vector<float> b(8, 1.0F);
  gradients.add(0, Factor::b, matrix(b, 2));
  EXPECT_TRUE(gradients.is_finite(0) && gradients.is_finite(1));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), AdapterGradients::kLimit}) {
    gradients.clear(pool);
    b[3] = bad;
    gradients.add(1, Factor::b, matrix(b, 2));
    EXPECT_TRUE(gradients.is_finite(0));
    EXPECT_FALSE(gradients.is_finite(1));
  }
  gradients.clear(pool);
  EXPECT_TRUE(gradients.is_finite(0) && gradients.is_finite(1));
  b[3] = 0.75F * AdapterGradients::kLimit;  // and a sum that grows too large
  gradients.add(0, Factor::b, matrix(b, 2));
  gradients.add(0, Factor::b, matrix(b, 2));
  EXPECT_TRUE(gradients.is_finite(0) && gradients.is_finite(1));
  gradients.add(0, Factor::b, matrix(b, 2));
  EXPECT_FALSE(gradients.is_finite(0));
  EXPECT_TRUE(gradients.is_finite(1));
}

}  // namespace
}  // namespace moesaic
