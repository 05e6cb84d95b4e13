#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "tests/kernels/attention_gradient_case.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

constexpr float kNoGradient = 12345;

/// Rows lie apart, with room that must stay untouched.
void expect_close(const Matrix& actual, const Doubles& exact, std::int64_t dim, double bound) {
  double square = 0;
  for (const double x : exact) square += x * x;
  // Where all is 0, as in the scores of a row that sees one key, roundings are left.
  const double typical = std::max(0.3, std::sqrt(square / static_cast<double>(exact.size())));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto d = static_cast<std::int64_t>(i) % (dim + kGradientGap);
    const auto row = static_cast<std::int64_t>(i) / (dim + kGradientGap);
    if (d >= dim) {
      ASSERT_EQ(actual[i], kNoGradient) << row << " " << d;
    } else {
      const double x = exact[static_cast<std::size_t>(row * dim + d)];
      ASSERT_NEAR(actual[i], x, bound * std::max(typical, std::abs(x))) << row << " " << d;
    }
  }
}

void expect_close(const AttentionGradients& actual, const GradientCase& test, double bound) {
  const ExpectedGradients exact = test.expected();
  expect_close(actual.queries, exact.queries, test.head_dim, bound);
  expect_close(actual.keys, exact.keys, test.head_dim, bound);
  expect_close(actual.values, exact.values, test.value_dim, bound);
}

void expect_equal(const AttentionGradients& a, const AttentionGradients& b) {
  EXPECT_EQ(first_difference(a.queries, b.queries), -1);
  EXPECT_EQ(first_difference(a.keys, b.keys), -1);
  EXPECT_EQ(first_difference(a.values, b.values), -1);
}

std::vector<GradientCase> all_cases(bool of_bf16) {
  std::vector<GradientCase> cases;
  for (const std::int64_t rows : {1, 2, 15, 16, 17, 63, 64, 65, 130, 200}) {
    for (const std::int64_t window : {0, 1, 5, 40, 64, 100}) {
      cases.push_back({.num_rows = rows, .head_dim = 16, .value_dim = 16, .window = window});
    }
  }
  for (const std::int64_t dim : {2, 6, 48, 64, 80, 128}) {
    cases.push_back({.num_rows = 100, .head_dim = dim, .value_dim = dim});
    cases.push_back({.num_rows = 90, .head_dim = dim, .value_dim = 24, .window = 70});
  }
  cases.push_back({.num_rows = 150, .head_dim = 32, .value_dim = 32, .size = 20});
  for (GradientCase& test : cases) {
    test.of_bf16 = of_bf16;
    test.fill();
  }
  return cases;
}

TEST(AttentionGradientTest, definition_is_what_finite_differences_give) {
  for (const std::int64_t window : {0, 3}) {
    GradientCase test = make_case({.num_rows = 7, .head_dim = 4, .value_dim = 6, .window = window});
    const ExpectedGradients exact = test.expected();
    const auto check = [&](Doubles& inputs, const Doubles& gradients) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        constexpr double kStep = 1e-5;
        const double x = inputs[i];
        inputs[i] = x + kStep;
        const double above = test.loss();
        inputs[i] = x - kStep;
        const double below = test.loss();
        inputs[i] = x;
        EXPECT_NEAR(gradients[i], (above - below) / (2 * kStep), 1e-7) << i;
      }
    };
    check(test.queries, exact.queries);
    check(test.keys, exact.keys);
    check(test.values, exact.values);
  }
}

class AttentionGradientKernelTest : public testing::TestWithParam<const AttentionKernel*> {
 protected:
  const AttentionKernel& kernel_ = *GetParam();
  const bool of_bf16_ = kernel_.kind == AttentionKind::bf16;
  const bool is_dot_ = of_bf16_ && kernel_.isa == Isa::avx512_bf16;
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttentionGradientKernelTest,
                         testing::ValuesIn(runnable_attention_kernels()), [](const auto& test) {
                           std::string name = test.param->name;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST_P(AttentionGradientKernelTest, is_close_to_double) {
  for (const GradientCase& test : all_cases(of_bf16_)) {
    SCOPED_TRACE(testing::Message() << test.num_rows << " rows, window " << test.window << ", "
                                    << test.head_dim << " and " << test.value_dim);
    const double bound = of_bf16_ ? 2e-2 : 1e-5;  // bf16 rounds weights and gradients of scores
    expect_close(test.run(kernel_, kNoGradient), test, test.size > 1 ? 10 * bound : bound);
  }
}

TEST_P(AttentionGradientKernelTest, gives_the_bits_of_scalar) {
  if (is_dot_) GTEST_SKIP() << "VDPBF16PS has bits of its own";
  const AttentionKernel& scalar = find_attention_kernel(Isa::scalar, kernel_.kind);
  for (const GradientCase& test : all_cases(false)) {
    SCOPED_TRACE(testing::Message() << test.num_rows << " rows, window " << test.window << ", "
                                    << test.head_dim << " and " << test.value_dim);
    expect_equal(test.run(kernel_, kNoGradient), test.run(scalar, kNoGradient));
  }
}

TEST_P(AttentionGradientKernelTest, rounds_inputs_to_bf16) {
  if (!of_bf16_) GTEST_SKIP() << "a cache in f32 rounds nothing";
  const GradientCase test = make_case({.num_rows = 70, .head_dim = 32, .value_dim = 32});
  GradientCase rounded = test;
  for (auto* rows : {&rounded.queries, &rounded.keys, &rounded.values, &rounded.gradients}) {
    for (double& x : *rows) x = to_float(to_bfloat16(static_cast<float>(x)));
  }
  expect_equal(test.run(kernel_, kNoGradient), rounded.run(kernel_, kNoGradient));
}

/// Later rows add to keys, not to queries.
TEST_P(AttentionGradientKernelTest, gradients_of_queries_do_not_depend_on_later_rows) {
  for (const std::int64_t window : {0, 20}) {
    const GradientCase test =
        make_case({.num_rows = 150, .head_dim = 16, .value_dim = 16, .window = window});
    const AttentionGradients whole = test.run(kernel_, kNoGradient);
    for (const std::int64_t rows : {1, 33, 64, 100}) {
      GradientCase part = test;
      part.num_rows = rows;
      const auto cut = [&](Doubles& all, std::int64_t dim) {
        all.resize(static_cast<std::size_t>(rows * dim));
      };
      for (auto* all : {&part.queries, &part.keys, &part.values, &part.gradients, &part.results}) {
        cut(*all, 16);
      }
      cut(part.log_sum_exps, 1);
      const Matrix queries = part.run(kernel_, kNoGradient).queries;
      EXPECT_EQ(first_difference(queries, std::span(whole.queries).first(queries.size())), -1);
    }
  }
}

Matrix without_gaps(const Matrix& rows) {
  Matrix out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i % (16 + kGradientGap) < 16) out.push_back(rows[i]);
  }
  return out;
}

TEST_P(AttentionGradientKernelTest, sums_in_the_documented_order) {
  const auto order = is_dot_    ? GradientCase::Order::dot
                     : of_bf16_ ? GradientCase::Order::tiles
                                : GradientCase::Order::chain;
  for (const std::int64_t window : {0, 50}) {
    const GradientCase test =
        make_case({.num_rows = 135, .head_dim = 16, .value_dim = 16, .window = window});
    const AttentionGradients actual = test.run(kernel_, kNoGradient);
    expect_equal(
        {without_gaps(actual.queries), without_gaps(actual.keys), without_gaps(actual.values)},
        test.model(order));
  }
}

}  // namespace
}  // namespace moesaic
