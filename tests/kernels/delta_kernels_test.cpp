// The kernels of a gated delta net on every instruction set.

#include "kernels/delta_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rounding.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

double silu(double x) {
  return x / (1 + std::exp(-x));
}

struct ConvolutionCase {
  std::int64_t taps;
  std::int64_t channels;
  std::int64_t rows;

  [[nodiscard]] std::int64_t older() const { return taps - 1; }
};

/// A convolution in some calls, whose rows before the first are numbers, too.
struct Convolution {
  explicit Convolution(const ConvolutionCase& of)
      : shape(of),
        x(normal_numbers(shape.rows * (shape.channels + 3), 1)),
        before(normal_numbers(shape.older() * (shape.channels + 1), 2)),
        weights(normal_numbers(shape.taps * (shape.channels + 4), 3)),
        y(static_cast<std::size_t>(shape.rows * (shape.channels + 2))) {}

  void run(const VectorKernels& kernels, std::int64_t rows_together) {
    for (std::int64_t first = 0; first < shape.rows; first += rows_together) {
      kernels.delta.convolve({.x = x.data() + first * (shape.channels + 3),
                              .x_stride = shape.channels + 3,
                              .before = before.data(),
                              .before_stride = shape.channels + 1,
                              .weights = weights.data(),
                              .weights_stride = shape.channels + 4,
                              .taps = shape.taps,
                              .channels = shape.channels,
                              .rows = std::min(rows_together, shape.rows - first),
                              .y = y.data() + first * (shape.channels + 2),
                              .y_stride = shape.channels + 2});
    }
  }
  /// From -older() on.
  [[nodiscard]] double row(std::int64_t t, std::int64_t channel) const {
    return t < 0 ? before[static_cast<std::size_t>((shape.older() + t) * (shape.channels + 1) +
                                                   channel)]
                 : x[static_cast<std::size_t>(t * (shape.channels + 3) + channel)];
  }

  ConvolutionCase shape;
  std::vector<float> x, before, weights, y;
};

TEST(DeltaKernels, convolve_as_defined_and_keep_the_last_rows) {
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const ConvolutionCase& shape :
         {ConvolutionCase{4, 37, 9}, {4, 16, 2}, {2, 5, 1}, {1, 20, 3}, {16, 33, 20}}) {
      const Convolution model(shape);
      Convolution actual(shape);
      actual.run(*kernels, shape.rows);
      for (std::int64_t t = 0; t < shape.rows; ++t) {
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          double sum = 0;
          for (std::int64_t j = 0; j < shape.taps; ++j) {
            sum += static_cast<double>(
                       model.weights[static_cast<std::size_t>(j * (shape.channels + 4) + c)]) *
                   model.row(t - shape.older() + j, c);
          }
          ASSERT_NEAR(actual.y[static_cast<std::size_t>(t * (shape.channels + 2) + c)], silu(sum),
                      1e-5)
              << kernels->name << " " << t << " " << c;
        }
      }
      for (std::int64_t i = 0; i < shape.older(); ++i) {
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          ASSERT_EQ(actual.before[static_cast<std::size_t>(i * (shape.channels + 1) + c)],
                    model.row(shape.rows - shape.older() + i, c));
        }
      }
    }
  }
}

TEST(DeltaKernels, convolutions_have_the_same_bits_everywhere_and_however_they_are_cut) {
  const ConvolutionCase shape{4, 37, 9};
  Convolution expected(shape);
  expected.run(find_vector_kernels(Isa::scalar), shape.rows);
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const std::int64_t rows : {9, 4, 1}) {
      Convolution actual(shape);
      actual.run(*kernels, rows);
      EXPECT_EQ(actual.y, expected.y) << kernels->name << " " << rows;
      EXPECT_EQ(actual.before, expected.before) << kernels->name << " " << rows;
    }
  }
}

struct RuleCase {
  std::int64_t key_dim;
  std::int64_t columns;
  std::int64_t rows;
};

struct Rule {
  explicit Rule(const RuleCase& of)
      : shape(of),
        keys(normal_numbers(shape.rows * shape.key_dim, 1, 0.3F)),
        queries(normal_numbers(shape.rows * shape.key_dim, 2)),
        values(normal_numbers(shape.rows * stride(), 3)),
        decays(normal_numbers(2 * shape.rows, 4)),
        rates(normal_numbers(2 * shape.rows, 5)),
        state(static_cast<std::size_t>(shape.key_dim * round_up(shape.columns, kDeltaColumns))),
        y(static_cast<std::size_t>(shape.rows * shape.columns)) {
    for (float& decay : decays) decay = std::exp(-std::abs(decay));
    for (float& rate : rates) rate = 1 / (1 + std::exp(rate));
  }
  [[nodiscard]] std::int64_t stride() const { return shape.columns + 3; }

  void run(const VectorKernels& kernels, std::int64_t rows_together,
           std::int64_t columns_together) {
    for (std::int64_t t = 0; t < shape.rows; t += rows_together) {
      for (std::int64_t c = 0; c < shape.columns; c += columns_together) {
        kernels.delta.delta_rule({.queries = queries.data() + t * shape.key_dim,
                                  .keys = keys.data() + t * shape.key_dim,
                                  .values = values.data() + t * stride() + c,
                                  .value_stride = stride(),
                                  .decays = decays.data() + 2 * t,
                                  .rates = rates.data() + 2 * t,
                                  .scalar_stride = 2,
                                  .key_dim = shape.key_dim,
                                  .columns = std::min(columns_together, shape.columns - c),
                                  .rows = std::min(rows_together, shape.rows - t),
                                  .state = state.data() + c * shape.key_dim,
                                  .y = y.data() + t * shape.columns + c,
                                  .y_stride = shape.columns});
      }
    }
  }

  RuleCase shape;
  std::vector<float> keys, queries, values, decays, rates, state, y;
};

/// S = g S; e = b (v - S^T k); S += k e^T; y = S^T q.
std::vector<double> by_definition(const Rule& rule) {
  const std::int64_t key_dim = rule.shape.key_dim;
  const std::int64_t columns = rule.shape.columns;
  std::vector<double> state(static_cast<std::size_t>(key_dim * columns));
  std::vector<double> y;
  const auto at = [&](std::int64_t i, std::int64_t c) -> double& {
    return state[static_cast<std::size_t>(i * columns + c)];
  };
  for (std::int64_t t = 0; t < rule.shape.rows; ++t) {
    const auto element = [&](const std::vector<float>& of, std::int64_t i) {
      const std::int64_t stride = &of == &rule.values ? rule.stride() : key_dim;
      return static_cast<double>(of[static_cast<std::size_t>(t * stride + i)]);
    };
    for (std::int64_t c = 0; c < columns; ++c) {
      double found = 0;
      for (std::int64_t i = 0; i < key_dim; ++i) {
        at(i, c) *= rule.decays[static_cast<std::size_t>(2 * t)];
        found += at(i, c) * element(rule.keys, i);
      }
      const double error =
          rule.rates[static_cast<std::size_t>(2 * t)] * (element(rule.values, c) - found);
      double sum = 0;
      for (std::int64_t i = 0; i < key_dim; ++i) {
        at(i, c) += element(rule.keys, i) * error;
        sum += at(i, c) * element(rule.queries, i);
      }
      y.push_back(sum);
    }
  }
  return y;
}

TEST(DeltaKernels, delta_rule_is_close_to_its_definition) {
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const RuleCase& shape : {RuleCase{10, 22, 12}, {128, 128, 5}, {3, 48, 20}, {17, 7, 9}}) {
      Rule rule(shape);
      const std::vector<double> expected = by_definition(rule);
      rule.run(*kernels, shape.rows, shape.columns);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(rule.y[i], expected[i], 1e-4) << kernels->name << " " << i;
      }
    }
  }
}

TEST(DeltaKernels, delta_rule_has_the_same_bits_everywhere_and_however_it_is_cut) {
  const RuleCase shape{18, 70, 11};
  Rule expected(shape);
  expected.run(find_vector_kernels(Isa::scalar), shape.rows, shape.columns);
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const std::int64_t rows : {11, 4, 1}) {
      for (const std::int64_t columns : {70, 32, 16}) {
        Rule rule(shape);
        rule.run(*kernels, rows, columns);
        EXPECT_EQ(rule.y, expected.y) << kernels->name << " " << rows << " " << columns;
        EXPECT_EQ(rule.state, expected.state) << kernels->name << " " << rows << " " << columns;
      }
    }
  }
}

TEST(DeltaKernels, decays_are_close_to_double_far_out_too) {
  std::vector<float> steps = normal_numbers(50, 1, 8);
  for (const float far : {-200.0F, -30.0F, 19.9F, 20.1F, 90.0F, 1e30F}) steps.push_back(far);
  const auto count = std::ssize(steps);
  const std::vector<float> logs = normal_numbers(count, 2);
  const std::vector<float> bias = normal_numbers(count, 3);
  std::vector<float> expected = steps;
  find_vector_kernels(Isa::scalar).delta.decays(logs.data(), bias.data(), count, expected.data());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double step = static_cast<double>(steps[i]) + bias[i];
    const double soft = step > 20 ? step : std::log1p(std::exp(step));
    ASSERT_NEAR(expected[i], std::exp(-std::exp(static_cast<double>(logs[i])) * soft), 2e-6) << i;
  }
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    std::vector<float> actual = steps;
    kernels->delta.decays(logs.data(), bias.data(), count, actual.data());
    EXPECT_EQ(first_difference(actual, expected), -1) << kernels->name;
  }
}

TEST(DeltaKernels, norms_are_close_to_double_with_the_same_bits_everywhere) {
  for (const std::int64_t n : {1, 9, 16, 70, 128}) {
    const std::vector<float> x = normal_numbers(n, 1, 3);
    const std::vector<float> weight = normal_numbers(n, 2);
    const std::vector<float> gate = normal_numbers(n, 3, 4);
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    std::vector<float> first_unit;
    std::vector<float> first_normed;
    for (const VectorKernels* kernels : runnable_vector_kernels()) {
      std::vector<float> unit = x;
      kernels->delta.scale_to_unit(0.25F, 1e-6F, n, unit.data());
      std::vector<float> normed = x;
      kernels->delta.gated_norm(weight.data(), 1e-5F, gate.data(), n, normed.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(unit[i], 0.25 * x[i] / std::sqrt(squares + 1e-6), 1e-6) << kernels->name;
        const double expected =
            x[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * weight[i] * silu(gate[i]);
        ASSERT_NEAR(normed[i], expected, 1e-5 * (1 + std::abs(expected))) << kernels->name;
      }
      if (first_unit.empty()) first_unit = unit;
      if (first_normed.empty()) first_normed = normed;
      EXPECT_EQ(unit, first_unit) << kernels->name;
      EXPECT_EQ(normed, first_normed) << kernels->name;
    }
  }
}

}  // namespace
}  // namespace moesaic
