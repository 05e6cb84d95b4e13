#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/dtype.h"
#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/vector_math.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

constexpr float kUntouched = 12345;
constexpr std::int64_t kGap = 3;  // unused elements between rows

using Matrix = std::vector<float>;  // [rows, width + kGap]

/// Random rows of one head of one sample, and what the forward pass gave for them, in double
/// precision and then rounded.
struct GradientCase {
  std::int64_t num_rows;
  std::int64_t head_dim;
  std::int64_t value_dim;
  std::int64_t window = 0;
  float size = 1;        // of queries
  bool of_bf16 = false;  // queries, keys and values are

  std::vector<double> queries{}, keys{}, values{}, gradients{};  // [num_rows, dim]
  std::vector<double> results{}, log_sum_exps{};

  void fill() {
    const auto numbers = [&](std::int64_t dim, unsigned seed, float scale, bool exact) {
      std::vector<double> out;
      for (const float x : normal_numbers(num_rows * dim, seed, scale)) {
        out.push_back(exact ? to_float(to_bfloat16(x)) : x);
      }
      return out;
    };
    queries = numbers(head_dim, 1, size, of_bf16);
    keys = numbers(head_dim, 2, 1, of_bf16);
    values = numbers(value_dim, 3, 1, of_bf16);
    gradients = numbers(value_dim, 4, 1, false);
    results.assign(static_cast<std::size_t>(num_rows * value_dim), 0);
    log_sum_exps.resize(static_cast<std::size_t>(num_rows));
    for (std::int64_t row = 0; row < num_rows; ++row) forward(row);
  }
  [[nodiscard]] double scale() const {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  }
  [[nodiscard]] std::int64_t first_key(std::int64_t row) const {
    return window > 0 ? std::max<std::int64_t>(0, row + 1 - window) : 0;
  }
  static double at(const std::vector<double>& rows, std::int64_t row, std::int64_t dim,
                   std::int64_t d) {
    return rows[static_cast<std::size_t>(row * dim + d)];
  }
  [[nodiscard]] double score(std::int64_t row, std::int64_t key) const {
    double sum = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      sum += at(queries, row, head_dim, d) * at(keys, key, head_dim, d);
    }
    return sum * scale();
  }
  void forward(std::int64_t row) {
    double greatest = -HUGE_VAL;
    for (std::int64_t key = first_key(row); key <= row; ++key) {
      greatest = std::max(greatest, score(row, key));
    }
    double total = 0;
    for (std::int64_t key = first_key(row); key <= row; ++key) {
      total += std::exp(score(row, key) - greatest);
    }
    log_sum_exps[static_cast<std::size_t>(row)] = greatest + std::log(total);
    for (std::int64_t key = first_key(row); key <= row; ++key) {
      const double weight = std::exp(score(row, key) - log_sum_exps[static_cast<std::size_t>(row)]);
      for (std::int64_t d = 0; d < value_dim; ++d) {
        results[static_cast<std::size_t>(row * value_dim + d)] +=
            weight * at(values, key, value_dim, d);
      }
    }
  }
  /// What the gradients are of.
  [[nodiscard]] double loss() {
    results.assign(results.size(), 0);
    for (std::int64_t row = 0; row < num_rows; ++row) forward(row);
    double sum = 0;
    for (std::size_t i = 0; i < results.size(); ++i) sum += results[i] * gradients[i];
    return sum;
  }
};

GradientCase make_case(GradientCase test) {
  test.fill();
  return test;
}

struct Gradients {
  std::vector<double> queries, keys, values;
};

/// By definition.
Gradients expected(const GradientCase& test) {
  Gradients sums{std::vector<double>(test.queries.size()), std::vector<double>(test.keys.size()),
                 std::vector<double>(test.values.size())};
  const auto add = [](std::vector<double>& rows, std::int64_t row, std::int64_t dim, std::int64_t d,
                      double x) { rows[static_cast<std::size_t>(row * dim + d)] += x; };
  for (std::int64_t row = 0; row < test.num_rows; ++row) {
    double dot = 0;
    for (std::int64_t d = 0; d < test.value_dim; ++d) {
      dot += test.at(test.gradients, row, test.value_dim, d) *
             test.at(test.results, row, test.value_dim, d);
    }
    for (std::int64_t key = test.first_key(row); key <= row; ++key) {
      const double weight =
          std::exp(test.score(row, key) - test.log_sum_exps[static_cast<std::size_t>(row)]);
      double product = 0;
      for (std::int64_t d = 0; d < test.value_dim; ++d) {
        const double gradient = test.at(test.gradients, row, test.value_dim, d);
        product += gradient * test.at(test.values, key, test.value_dim, d);
        add(sums.values, key, test.value_dim, d, weight * gradient);
      }
      const double score = weight * (product - dot) * test.scale();
      for (std::int64_t d = 0; d < test.head_dim; ++d) {
        add(sums.queries, row, test.head_dim, d, score * test.at(test.keys, key, test.head_dim, d));
        add(sums.keys, key, test.head_dim, d, score * test.at(test.queries, row, test.head_dim, d));
      }
    }
  }
  return sums;
}

struct Result {
  Matrix queries, keys, values;
};

Matrix as_floats(const std::vector<double>& rows, std::int64_t dim) {
  Matrix out;
  for (std::size_t i = 0; i < rows.size(); i += static_cast<std::size_t>(dim)) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d) {
      out.push_back(static_cast<float>(rows[i + d]));
    }
    out.insert(out.end(), kGap, NAN);
  }
  return out;
}

Result run(const AttentionKernel& kernel, const GradientCase& test) {
  const auto in = [&](const std::vector<double>& rows, std::int64_t dim) {
    return as_floats(rows, dim);
  };
  const Matrix queries = in(test.queries, test.head_dim);
  const Matrix keys = in(test.keys, test.head_dim);
  const Matrix values = in(test.values, test.value_dim);
  const Matrix results = in(test.results, test.value_dim);
  const Matrix gradients = in(test.gradients, test.value_dim);
  const Matrix log_sum_exps = in(test.log_sum_exps, 1);
  Result result{Matrix(queries.size(), kUntouched), Matrix(keys.size(), kUntouched),
                Matrix(values.size(), kUntouched)};
  const std::int64_t bytes =
      attention_gradient_scratch_bytes(test.num_rows, test.head_dim, test.value_dim);
  std::vector<float> scratch(static_cast<std::size_t>(bytes / 4 + 16), NAN);
  auto* aligned = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const std::int64_t head_stride = test.head_dim + kGap;
  const std::int64_t value_stride = test.value_dim + kGap;
  kernel.differentiate({.num_rows = test.num_rows,
                        .window = test.window,
                        .head_dim = test.head_dim,
                        .value_dim = test.value_dim,
                        .scale = static_cast<float>(test.scale()),
                        .queries = {queries.data(), head_stride},
                        .keys = {keys.data(), head_stride},
                        .values = {values.data(), value_stride},
                        .results = {results.data(), value_stride},
                        .result_gradients = {gradients.data(), value_stride},
                        .log_sum_exps = {log_sum_exps.data(), 1 + kGap},
                        .scratch = aligned,
                        .query_gradients = {result.queries.data(), head_stride},
                        .key_gradients = {result.keys.data(), head_stride},
                        .value_gradients = {result.values.data(), value_stride}});
  return result;
}

/// Rows lie apart, with room that must stay untouched.
void expect_close(const Matrix& actual, const std::vector<double>& exact, std::int64_t dim,
                  double bound) {
  double square = 0;
  for (const double x : exact) square += x * x;
  // Where all is 0, as in the scores of a row that sees one key, roundings are left.
  const double typical = std::max(0.3, std::sqrt(square / static_cast<double>(exact.size())));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto d = static_cast<std::int64_t>(i) % (dim + kGap);
    const auto row = static_cast<std::int64_t>(i) / (dim + kGap);
    if (d >= dim) {
      ASSERT_EQ(actual[i], kUntouched) << row << " " << d;
    } else {
      const double x = exact[static_cast<std::size_t>(row * dim + d)];
      ASSERT_NEAR(actual[i], x, bound * std::max(typical, std::abs(x))) << row << " " << d;
    }
  }
}

void expect_close(const Result& actual, const GradientCase& test, double bound) {
  const Gradients exact = expected(test);
  expect_close(actual.queries, exact.queries, test.head_dim, bound);
  expect_close(actual.keys, exact.keys, test.head_dim, bound);
  expect_close(actual.values, exact.values, test.value_dim, bound);
}

void expect_equal(const Result& a, const Result& b) {
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
    const Gradients exact = expected(test);
    const auto check = [&](std::vector<double>& inputs, const std::vector<double>& gradients) {
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
    expect_close(run(kernel_, test), test, test.size > 1 ? 1e-4 : 1e-5);
  }
}

TEST_P(AttentionGradientKernelTest, gives_the_bits_of_scalar) {
  const AttentionKernel& scalar = find_attention_kernel(Isa::scalar, kernel_.kind);
  for (const GradientCase& test : all_cases(false)) {
    SCOPED_TRACE(testing::Message() << test.num_rows << " rows, window " << test.window << ", "
                                    << test.head_dim << " and " << test.value_dim);
    expect_equal(run(kernel_, test), run(scalar, test));
  }
}

TEST_P(AttentionGradientKernelTest, rounds_queries_keys_and_values_as_the_cache_does) {
  if (!of_bf16_) GTEST_SKIP() << "a cache in f32 rounds nothing";
  const AttentionKernel& exact = find_attention_kernel(kernel_.isa, AttentionKind::f32);
  const GradientCase test = make_case({.num_rows = 70, .head_dim = 32, .value_dim = 32});
  GradientCase rounded = test;
  for (auto* rows : {&rounded.queries, &rounded.keys, &rounded.values}) {
    for (double& x : *rows) x = to_float(to_bfloat16(static_cast<float>(x)));
  }
  expect_equal(run(kernel_, test), run(exact, rounded));
}

/// Later rows add to keys, not to queries.
TEST_P(AttentionGradientKernelTest, gradients_of_queries_do_not_depend_on_later_rows) {
  for (const std::int64_t window : {0, 20}) {
    const GradientCase test =
        make_case({.num_rows = 150, .head_dim = 16, .value_dim = 16, .window = window});
    const Result whole = run(kernel_, test);
    for (const std::int64_t rows : {1, 33, 64, 100}) {
      GradientCase part = test;
      part.num_rows = rows;
      const auto cut = [&](std::vector<double>& all, std::int64_t dim) {
        all.resize(static_cast<std::size_t>(rows * dim));
      };
      for (auto* all : {&part.queries, &part.keys, &part.values, &part.gradients, &part.results}) {
        cut(*all, 16);
      }
      cut(part.log_sum_exps, 1);
      const Matrix queries = run(kernel_, part).queries;
      EXPECT_EQ(first_difference(queries, std::span(whole.queries).first(queries.size())), -1);
    }
  }
}

/// exp() of the kernels.
float exponential(float x) {
  float lanes[kLanes];
  store(lanes, exp(broadcast(x)));
  return lanes[0];
}

float tree_sum(std::array<float, 16> lanes) {
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// What docs/numerics.md says, step by step; rows of 16 elements.
Result model(const GradientCase& test) {
  const auto in = [](const std::vector<double>& rows, std::int64_t row, std::int64_t d) {
    return static_cast<float>(GradientCase::at(rows, row, 16, d));
  };
  const auto add = [](Matrix& sums, std::int64_t row, std::int64_t d, float a, float b) {
    float& sum = sums[static_cast<std::size_t>(row * 16 + d)];
    sum = std::fma(a, b, sum);
  };
  const auto scale = static_cast<float>(test.scale());
  const Matrix zeros(static_cast<std::size_t>(test.num_rows * 16));
  Result sums{zeros, zeros, zeros};
  for (std::int64_t row = 0; row < test.num_rows; ++row) {
    std::array<float, 16> lanes{};
    for (std::int64_t d = 0; d < 16; ++d) {
      lanes[static_cast<std::size_t>(d)] = in(test.gradients, row, d) * in(test.results, row, d);
    }
    const float dot = tree_sum(lanes);
    const auto log_sum_exp = static_cast<float>(test.log_sum_exps[static_cast<std::size_t>(row)]);
    for (std::int64_t key = test.first_key(row); key <= row; ++key) {
      float score = 0;
      float product = 0;
      for (std::int64_t d = 0; d < 16; ++d) {
        score = std::fma(in(test.queries, row, d), in(test.keys, key, d), score);
        product = std::fma(in(test.gradients, row, d), in(test.values, key, d), product);
      }
      const float weight = exponential(std::fma(score, scale, -log_sum_exp));
      const float gradient = (product - dot) * weight * scale;
      for (std::int64_t d = 0; d < 16; ++d) {
        add(sums.queries, row, d, gradient, in(test.keys, key, d));
        add(sums.keys, key, d, gradient, in(test.queries, row, d));
        add(sums.values, key, d, weight, in(test.gradients, row, d));
      }
    }
  }
  return sums;
}

Matrix without_gaps(const Matrix& rows) {
  Matrix out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i % (16 + kGap) < 16) out.push_back(rows[i]);
  }
  return out;
}

TEST_P(AttentionGradientKernelTest, sums_in_the_documented_order) {
  if (of_bf16_) GTEST_SKIP() << "that of f32, as another test says";
  for (const std::int64_t window : {0, 50}) {
    const GradientCase test =
        make_case({.num_rows = 135, .head_dim = 16, .value_dim = 16, .window = window});
    const Result actual = run(kernel_, test);
    expect_equal(
        {without_gaps(actual.queries), without_gaps(actual.keys), without_gaps(actual.values)},
        model(test));
  }
}

}  // namespace
}  // namespace moesaic
