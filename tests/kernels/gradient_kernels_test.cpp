// Sums of gradients in fixed point and AdamW, with every instruction set.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

constexpr FixedPoint kForm{.per_one = 0x1p44, .limit = 0x1p18F};
constexpr std::int64_t kCounts[] = {0, 1, 15, 16, 17, 100};

const GradientKernels& scalar_kernels() {
  return find_vector_kernels(Isa::scalar).gradients;
}

std::vector<std::int64_t> whole_numbers(std::int64_t count, int bits) {
  std::mt19937_64 random(static_cast<std::uint64_t>(count + bits));
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  for (std::int64_t& number : numbers) number = static_cast<std::int64_t>(random()) >> (64 - bits);
  return numbers;
}

TEST(GradientKernels, add_what_exact_arithmetic_rounds) {
  for (const std::int64_t n : kCounts) {
    std::vector<float> x = normal_numbers(n, 1, 1);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 0x1p-40F;  // near the unit
    for (std::size_t i = 0; i < x.size(); i += 5) x[i] = (i % 2 == 0 ? 1.5F : -2.5F) * 0x1p-44F;
    const std::vector<std::int64_t> before = whole_numbers(n, 62);
    for (const VectorKernels* kernels : runnable_vector_kernels()) {
      std::vector<std::int64_t> sums = before;
      EXPECT_TRUE(kernels->gradients.add_fixed(kForm, x.data(), n, sums.data())) << kernels->name;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto units = std::llround(static_cast<long double>(x[i]) * 0x1p44L);
        ASSERT_EQ(sums[i], before[i] + units) << kernels->name << " " << i << " of " << n;
      }
    }
  }
}

TEST(GradientKernels, what_does_not_fit_is_told_and_left_out) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const float bad : {kForm.limit, -kForm.limit, infinity, -infinity,
                            std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t at : {0, 15, 18}) {
        std::vector<float> x(19, 1.0F);
        x[at] = bad;
        std::vector<std::int64_t> sums(19, 3);
        EXPECT_FALSE(kernels->gradients.add_fixed(kForm, x.data(), 19, sums.data()));
        EXPECT_EQ(sums[at], 3) << kernels->name;
        EXPECT_EQ(sums[7], 3 + (std::int64_t{1} << 44)) << kernels->name;
      }
    }
    const std::vector<float> large(19, 0.75F * kForm.limit);
    std::vector<std::int64_t> sums(19, 0);
    sums[17] = std::numeric_limits<std::int64_t>::max() - 5;
    EXPECT_FALSE(kernels->gradients.add_fixed(kForm, large.data(), 19, sums.data()));
    sums[17] = std::numeric_limits<std::int64_t>::min() + 5;
    EXPECT_TRUE(kernels->gradients.add_fixed(kForm, large.data(), 19, sums.data()));
  }
}

TEST(GradientKernels, find_what_is_beyond_a_limit) {
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    const auto beyond = kernels->gradients.any_beyond;
    for (const std::int64_t n : {1, 16, 37}) {
      std::vector<std::int64_t> x(static_cast<std::size_t>(n), 7);
      x.front() = -7;
      EXPECT_FALSE(beyond(x.data(), n, 7)) << kernels->name;
      for (const std::int64_t value :
           {std::int64_t{8}, std::int64_t{-8}, std::numeric_limits<std::int64_t>::min()}) {
        x.back() = value;
        EXPECT_TRUE(beyond(x.data(), n, 7)) << kernels->name;
      }
    }
  }
}

TEST(GradientKernels, squares_have_the_same_bits_everywhere) {
  for (const std::int64_t n : kCounts) {
    const std::vector<std::int64_t> x = whole_numbers(n, 62);
    const double expected = scalar_kernels().sum_of_squares(x.data(), n);
    long double exact = 0;
    for (const std::int64_t value : x) exact += static_cast<long double>(value) * value;
    EXPECT_NEAR(expected, static_cast<double>(exact), 1e-13 * static_cast<double>(exact));
    for (const VectorKernels* kernels : runnable_vector_kernels()) {
      EXPECT_EQ(kernels->gradients.sum_of_squares(x.data(), n), expected) << kernels->name;
    }
  }
}

constexpr AdamUpdate kUpdate{.decay = 0.999F,
                             .first_share = 0.1F,
                             .second_kept = 0.95F,
                             .second_share = 0.05F,
                             .second_root = 0.3F,
                             .epsilon = 1e-8F,
                             .step_size = -0.01F,
                             .scale = 0x1p-46};

struct Parameters {
  explicit Parameters(std::int64_t n)
      : sums(whole_numbers(n, 48)),
        parameters(normal_numbers(n, 2, 1)),
        first(normal_numbers(n, 3, 1)),
        second(normal_numbers(n, 4, 1)) {
    for (float& value : second) value = std::abs(value);
  }
  void run(const GradientKernels& kernels) {
    kernels.adam(kUpdate, {sums.data(), parameters.data(), first.data(), second.data()},
                 std::ssize(sums));
  }
  std::vector<std::int64_t> sums;
  std::vector<float> parameters, first, second;
};

TEST(GradientKernels, adam_has_the_same_bits_everywhere) {
  for (const std::int64_t n : kCounts) {
    Parameters expected(n);
    expected.run(scalar_kernels());
    for (const VectorKernels* kernels : runnable_vector_kernels()) {
      Parameters rows(n);
      rows.run(kernels->gradients);
      EXPECT_EQ(rows.parameters, expected.parameters) << kernels->name;
      EXPECT_EQ(rows.first, expected.first) << kernels->name;
      EXPECT_EQ(rows.second, expected.second) << kernels->name;
    }
  }
}

}  // namespace
}  // namespace moesaic
