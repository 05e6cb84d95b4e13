// The gradient of gated activations on every instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

constexpr Gating kPlain{};
constexpr Gating kClamped{.limit = 2, .alpha = 1.5F, .offset = 1};

struct Rows {
  explicit Rows(std::int64_t count)
      : gate(normal_numbers(count, 1, 3)),
        up(normal_numbers(count, 2, 3)),
        inner(normal_numbers(count, 3, 1)) {
    for (std::size_t i = 0; i < gate.size(); i += 7) gate[i] *= 40;  // far outside of exp's range
  }
  float run(const VectorKernels& kernels, const Gating& gating) {
    return kernels.gate_gradient(
        gating, {.gate = gate.data(), .up = up.data(), .inner = inner.data()}, std::ssize(gate));
  }

  std::vector<float> gate, up, inner;
};

double activation(const Gating& gating, double gate, double up) {
  const double limit = static_cast<double>(gating.limit);
  const double g = std::min(gate, limit);
  const double u = std::max(-limit, std::min(up, limit));
  return g / (1 + std::exp(-static_cast<double>(gating.alpha) * g)) *
         (u + static_cast<double>(gating.offset));
}

TEST(GateGradient, is_near_finite_differences) {
  constexpr double kDifference = 1e-6;
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const Gating& gating : {kPlain, kClamped}) {
      for (const std::int64_t n : {1, 15, 16, 70}) {
        const Rows before(n);
        Rows after(n);
        const float product = after.run(*kernels, gating);
        double expected = 0;
        for (std::size_t i = 0; i < before.gate.size(); ++i) {
          const double gate = before.gate[i];
          const double up = before.up[i];
          const double d = before.inner[i];
          const auto h = [&](double dg, double du) {
            return activation(gating, gate + dg, up + du);
          };
          const double size = 1e-5 * (1 + std::abs(d) * (1 + std::abs(gate) + std::abs(up)));
          ASSERT_NEAR(after.gate[i],
                      d * (h(kDifference, 0) - h(-kDifference, 0)) / (2 * kDifference), size);
          ASSERT_NEAR(after.up[i], d * (h(0, kDifference) - h(0, -kDifference)) / (2 * kDifference),
                      size);
          ASSERT_NEAR(after.inner[i], h(0, 0), size);
          expected += d * h(0, 0);
        }
        ASSERT_NEAR(product, expected, 1e-5 * static_cast<double>(n) * 300);
      }
    }
  }
}

TEST(GateGradient, has_the_same_bits_everywhere) {
  for (const Gating& gating : {kPlain, kClamped}) {
    for (const std::int64_t n : {1, 17, 100}) {
      Rows scalar(n);
      const float product = scalar.run(find_vector_kernels(Isa::scalar), gating);
      for (const VectorKernels* kernels : runnable_vector_kernels()) {
        Rows rows(n);
        EXPECT_EQ(rows.run(*kernels, gating), product) << kernels->name;
        EXPECT_EQ(rows.gate, scalar.gate) << kernels->name;
        EXPECT_EQ(rows.up, scalar.up) << kernels->name;
        EXPECT_EQ(rows.inner, scalar.inner) << kernels->name;
      }
    }
  }
}

TEST(GateGradient, rounds_where_the_floats_were) {
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const std::int64_t n : {1, 16, 17, 100}) {
      Rows floats(n);
      const float product = floats.run(*kernels, kClamped);
      Rows rounded(n);
      const float same = kernels->gate_gradient_bf16(
          kClamped,
          {.gate = rounded.gate.data(), .up = rounded.up.data(), .inner = rounded.inner.data()}, n);
      EXPECT_EQ(same, product) << kernels->name;
      for (const auto part : {&Rows::gate, &Rows::up, &Rows::inner}) {
        std::vector<BFloat16> expected(static_cast<std::size_t>(n));
        kernels->to_bf16((floats.*part).data(), n, expected.data());
        EXPECT_EQ(std::memcmp((rounded.*part).data(), expected.data(), expected.size() * 2), 0)
            << kernels->name << " " << n;
      }
    }
  }
}

TEST(GateGradient, not_a_number_stays) {
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    Rows rows(20);
    rows.gate[3] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(rows.run(*kernels, kClamped)));
    EXPECT_TRUE(std::isnan(rows.gate[3]));
    EXPECT_FALSE(std::isnan(rows.gate[4]));
  }
}

}  // namespace
}  // namespace moesaic
