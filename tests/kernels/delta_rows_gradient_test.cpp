// The way back through what a gated delta net computes row by row, on every instruction set.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/delta_gradient.h"
#include "tests/kernels/runnable_kernels.h"
#include "tests/support/slopes.h"

namespace moesaic {
namespace {

double silu_of(double x) {
  return x / (1 + std::exp(-x));
}

TEST(DeltaRowsGradient, convolutions_go_back_as_finite_differences_say) {
  const std::int64_t channels = 21;
  for (const auto& [taps, rows] : {std::pair<std::int64_t, std::int64_t>{4, 9}, {4, 2}, {1, 3}}) {
    const Floats x = normal_numbers(rows * channels, 1);
    const Floats weights = normal_numbers(taps * channels, 2);
    const Floats dy = normal_numbers(rows * channels, 3);
    Doubles values = as_doubles(x);
    const auto loss = [&, rows = rows, taps = taps] {
      double sum = 0;
      for (std::int64_t i = 0; i < rows * channels; ++i) {
        double convolved = 0;
        for (std::int64_t j = 0; j < taps; ++j) {
          const std::int64_t from = i - (taps - 1 - j) * channels;
          if (from < 0) continue;
          convolved += values[static_cast<std::size_t>(from)] *
                       weights[static_cast<std::size_t>(j * channels + i % channels)];
        }
        sum += silu_of(convolved) * dy[static_cast<std::size_t>(i)];
      }
      return sum;
    };
    const Doubles expected = slopes(values, loss);
    Floats first;
    for (const VectorKernels* kernels : runnable_vector_kernels()) {
      Floats gradient = dy;
      kernels->delta_gradient.convolve({.x = {x.data(), channels},
                                        .weights = {weights.data(), channels},
                                        .taps = taps,
                                        .channels = channels,
                                        .rows = rows,
                                        .gradient = {gradient.data(), channels}});
      EXPECT_LT(distance(gradient, expected), 1e-6) << kernels->name << taps;
      if (first.empty()) first = gradient;
      EXPECT_EQ(gradient, first) << kernels->name << taps;
    }
  }
}

TEST(DeltaRowsGradient, norms_go_back_as_finite_differences_say) {
  for (const std::int64_t n : {1, 9, 16, 70}) {
    const Floats x = normal_numbers(n, 1, 2);
    const Floats weight = normal_numbers(n, 2);
    const Floats gate = normal_numbers(n, 3);
    const Floats dy = normal_numbers(n, 4);
    Doubles values = as_doubles(x);
    Doubles gates = as_doubles(gate);
    const auto unit_loss = [&] {
      const double squares = product(values.data(), values.data(), n);
      return 0.25 * product(values.data(), as_doubles(dy).data(), n) / std::sqrt(squares + 1e-2);
    };
    const auto norm_loss = [&] {
      const double mean = product(values.data(), values.data(), n) / static_cast<double>(n);
      double sum = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum += values[i] / std::sqrt(mean + 1e-2) * weight[i] * silu_of(gates[i]) * dy[i];
      }
      return sum;
    };
    const Doubles by_unit = slopes(values, unit_loss);
    const Doubles by_norm = slopes(values, norm_loss);
    const Doubles by_gates = slopes(gates, norm_loss);
    std::vector<Floats> first;
    for (const VectorKernels* kernels : runnable_vector_kernels()) {
      Floats unit = x;
      const float factor = kernels->delta.scale_to_unit(0.25F, 1e-2F, n, unit.data());
      std::vector<Floats> found{dy, dy, Floats(dy.size())};
      kernels->delta_gradient.unit({.unit = unit.data(), .scale = 0.25F, .factor = factor, .n = n},
                                   found[0].data());
      kernels->delta_gradient.gated_norm(
          {.weight = weight.data(), .epsilon = 1e-2F, .gate = gate.data(), .y = x.data(), .n = n},
          found[1].data(), found[2].data());
      const double limit = n == 1 ? 1e-3 : 1e-5;  // of one element all but epsilon's part is gone
      EXPECT_LT(distance(found[0], by_unit), limit) << kernels->name << n;
      EXPECT_LT(distance(found[1], by_norm), limit) << kernels->name << n;
      EXPECT_LT(distance(found[2], by_gates), 1e-5) << kernels->name << n;
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << kernels->name << n;
    }
  }
}

TEST(DeltaRowsGradient, slopes_of_decays_are_close_to_double_far_out_too) {
  Floats steps = normal_numbers(50, 1, 8);
  for (const float far : {-200.0F, -30.0F, 20.1F, 90.0F, 1e30F}) steps.push_back(far);
  const auto count = std::ssize(steps);
  const Floats logs = normal_numbers(count, 2);
  const Floats bias = normal_numbers(count, 3);
  Floats first;
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    Floats found = steps;
    kernels->delta_gradient.decay_slopes(logs.data(), bias.data(), count, found.data());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double expected =
          -std::exp(static_cast<double>(logs[i])) /
          (1 + std::exp(-static_cast<double>(steps[i]) - static_cast<double>(bias[i])));
      ASSERT_NEAR(found[i], expected, 1e-37 + 2e-6 * std::abs(expected)) << kernels->name << i;
    }
    if (first.empty()) first = found;
    EXPECT_EQ(first_difference(found, first), -1) << kernels->name;
  }
}

}  // namespace
}  // namespace moesaic
