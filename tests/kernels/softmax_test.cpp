// softmax, and the logarithm of a sum of exponentials.

#include "tests/kernels/vector_kernels_case.h"

namespace moesaic {
namespace {

using SoftmaxTest = VectorKernelsTest;

INSTANTIATE_TEST_SUITE_P(EveryIsa, SoftmaxTest, testing::ValuesIn(runnable_vector_kernels()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST_P(SoftmaxTest, softmax_is_close_to_double) {
  for (const std::int64_t n : sizes()) {
    const auto x = normal_numbers(n, 6, 5);
    auto y = x;
    kernels_.softmax(y.data(), n);
    double sum = 0;
    const double max = n == 0 ? 0 : *std::max_element(x.begin(), x.end());
    for (const float value : x) sum += std::exp(value - max);
    // Rounding value - max costs up to half a unit of |value - max| in the exponent.
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double expected = std::exp(x[i] - max) / sum;
      const double bound = kEpsilon * (static_cast<double>(n) / 16 + 12 + 2 * std::abs(x[i] - max));
      ASSERT_NEAR(y[i], expected, expected * bound) << n << " " << i;
    }
  }
}

TEST_P(SoftmaxTest, exp_is_close_to_double_down_to_subnormals) {
  double worst = 0;
  for (float x = -17.5F; x > -105.0F; x -= 0.00173F) {
    float y[] = {0, x};  // the sum rounds to 1, so that y[1] becomes exp(x)
    kernels_.softmax(y, 2);
    ASSERT_EQ(y[0], 1.0F);
    worst = std::max(worst, ulps(y[1], std::exp(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 0.9);
}

TEST_P(SoftmaxTest, softmax_of_special_values) {
  std::vector<float> x = {-kInf, 1.0F, 1.0F, -kHuge};
  kernels_.softmax(x.data(), 4);
  EXPECT_EQ(first_difference(x, std::vector<float>{0.0F, 0.5F, 0.5F, 0.0F}), -1);
  x = {kHuge, kHuge};
  kernels_.softmax(x.data(), 2);
  EXPECT_EQ(first_difference(x, std::vector<float>{0.5F, 0.5F}), -1);
  for (const float poison : {kNan, kInf}) {
    x = std::vector<float>(20, 1.0F);
    x[3] = poison;
    kernels_.softmax(x.data(), 20);
    EXPECT_TRUE(std::isnan(x[3]));
  }
}

TEST_P(SoftmaxTest, log_sum_exp_is_close_to_double) {
  for (const std::int64_t n : sizes()) {
    if (n == 0) continue;
    const auto x = normal_numbers(n, 8, 4);
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float value : x) sum += std::exp(value - max);
    const double expected = max + std::log(sum);
    const double bound = kEpsilon * (std::abs(expected) + static_cast<double>(n) / 16 + 16);
    EXPECT_NEAR(kernels_.log_sum_exp(x.data(), n), expected, bound) << n;
  }
}

TEST_P(SoftmaxTest, log_sum_exp_of_special_values) {
  const auto of = [&](std::vector<float> x) {
    return kernels_.log_sum_exp(x.data(), static_cast<std::int64_t>(x.size()));
  };
  EXPECT_EQ(of({}), -kInf);
  EXPECT_EQ(of({-kInf, -kInf}), -kInf);
  EXPECT_EQ(of({kInf, 1.0F}), kInf);
  EXPECT_TRUE(std::isnan(of({kNan, 1.0F, 2.0F})));
  EXPECT_TRUE(std::isnan(of({2.0F, kInf, kNan})));
  EXPECT_EQ(of({-123.25F}), -123.25F);
  EXPECT_EQ(of({kHuge, kHuge}), kHuge);
  EXPECT_FLOAT_EQ(of({0.0F, 0.0F}), std::log(2.0F));
}

}  // namespace
}  // namespace moesaic
