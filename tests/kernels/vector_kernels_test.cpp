#include "kernels/vector_kernels.h"

#include <bit>

#include "tests/kernels/vector_kernels_case.h"

namespace moesaic {
namespace {

INSTANTIATE_TEST_SUITE_P(EveryIsa, VectorKernelsTest, testing::ValuesIn(runnable_vector_kernels()),
                         [](const auto& test) { return std::string(test.param->name); });

// ---- against double precision ----

TEST_P(VectorKernelsTest, rms_norm_is_close_to_double) {
  constexpr float kNormEpsilon = 1e-6F;
  for (const std::int64_t n : sizes()) {
    const auto x = normal_numbers(n, 1, 3);
    const auto weight = normal_numbers(n, 2);
    std::vector<float> y(x.size());
    kernels_.rms_norm(x.data(), weight.data(), kNormEpsilon, n, y.data());
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + kNormEpsilon);
    const double bound = kEpsilon * (static_cast<double>(n) / 32 + 8);  // half the sum's, by sqrt
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double expected = weight[i] * x[i] * inverse;
      ASSERT_NEAR(y[i], expected, std::abs(expected) * bound) << n << " " << i;
    }
  }
}

TEST_P(VectorKernelsTest, rms_norm_sums_in_the_documented_order) {
  for (const std::int64_t n : sizes()) {
    if (n == 0) continue;
    const auto x = normal_numbers(n, 7);
    const std::vector<float> weight(x.size(), 1);
    std::vector<float> y(x.size());
    kernels_.rms_norm(x.data(), weight.data(), 0, n, y.data());
    float lanes[16] = {};
    for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    const float inverse = 1 / std::sqrt(lanes[0] / static_cast<float>(n));
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] * inverse) << n << " " << i;
  }
}

/// By definition: dx = J^T dy, of y = weight x / sqrt(mean(x^2) + epsilon).
std::vector<double> norm_gradient(const std::vector<float>& x, const std::vector<float>& weight,
                                  const std::vector<float>& dy, double epsilon) {
  double squares = 0;
  double product = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    squares += static_cast<double>(x[i]) * x[i];
    product += static_cast<double>(dy[i]) * weight[i] * x[i];
  }
  const auto n = static_cast<double>(x.size());
  const double inverse = 1 / std::sqrt(squares / n + epsilon);
  std::vector<double> dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    dx.push_back(inverse *
                 (static_cast<double>(dy[i]) * weight[i] - x[i] * inverse * inverse * product / n));
  }
  return dx;
}

TEST_P(VectorKernelsTest, rms_norm_gradient_is_close_to_double) {
  for (const std::int64_t n : sizes()) {
    const auto x = normal_numbers(n, 1, 3);
    const auto weight = normal_numbers(n, 2);
    const auto dy = normal_numbers(n, 3, 5);
    std::vector<float> dx(x.size() + 16, kUnwritten);
    kernels_.rms_norm_gradient({x.data(), weight.data(), 1e-3F, n}, dy.data(), dx.data());
    const std::vector<double> expected = norm_gradient(x, weight, dy, 1e-3F);
    const double bound = kEpsilon * (static_cast<double>(n) / 16 + 8) * 10;  // terms cancel
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(dx[i], expected[i], bound * std::max(1.0, std::abs(expected[i])))
          << n << " " << i;
    }
    EXPECT_EQ(std::count(dx.begin() + n, dx.end(), kUnwritten), 16) << n;
    auto in_place = dy;
    kernels_.rms_norm_gradient({x.data(), weight.data(), 1e-3F, n}, in_place.data(),
                               in_place.data());
    EXPECT_TRUE(std::equal(in_place.begin(), in_place.end(), dx.begin())) << n;
  }
}

TEST_P(VectorKernelsTest, rms_norm_gradient_is_that_of_rms_norm) {
  constexpr std::int64_t kSize = 24;
  constexpr float kBetween = 1.0F / 64;
  const auto x = normal_numbers(kSize, 1);
  const auto weight = normal_numbers(kSize, 2);
  const auto dy = normal_numbers(kSize, 3);
  std::vector<float> dx(x.size());
  kernels_.rms_norm_gradient({x.data(), weight.data(), 0.1F, kSize}, dy.data(), dx.data());
  const auto loss = [&](const std::vector<float>& at) {
    std::vector<float> y(at.size());
    kernels_.rms_norm(at.data(), weight.data(), 0.1F, kSize, y.data());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * dy[i];
    return sum;
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto above = x;
    auto below = x;
    above[i] += kBetween;
    below[i] -= kBetween;
    const double slope = (loss(above) - loss(below)) / (above[i] - below[i]);
    EXPECT_NEAR(dx[i], slope, 2e-4) << i;
  }
}

TEST_P(VectorKernelsTest, to_bf16_rounds_every_upper_half_as_the_scalar_conversion) {
  constexpr std::uint32_t kLowerHalves[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  std::vector<float> x;
  for (std::uint32_t upper = 0; upper <= 0xffff; ++upper) {
    for (const std::uint32_t lower : kLowerHalves) {
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::vector<BFloat16> y(x.size());
  kernels_.to_bf16(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i].bits, to_bfloat16(x[i]).bits) << std::bit_cast<std::uint32_t>(x[i]);
  }
}

TEST_P(VectorKernelsTest, to_bf16_writes_n_elements) {
  for (const std::int64_t n : sizes()) {
    const auto x = normal_numbers(n, 3);
    std::vector<BFloat16> y(x.size() + 16, BFloat16{0x1234});
    kernels_.to_bf16(x.data(), n, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i].bits, i < x.size() ? to_bfloat16(x[i]).bits : 0x1234) << n << " " << i;
    }
  }
}

/// `gate` gated with `up`.
std::vector<float> gated(const VectorKernels& kernels, std::vector<float> gate,
                         const std::vector<float>& up, const Gating& gating = {}) {
  kernels.gate(gating, up.data(), static_cast<std::int64_t>(gate.size()), gate.data());
  return gate;
}

TEST_P(VectorKernelsTest, swiglu_is_close_to_double) {
  const std::int64_t n = 100'000;
  std::vector<float> gate(n);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = -88.0F + 0.00177F * static_cast<float>(i);
  const std::vector<float> up(gate.size(), 1);
  const std::vector<float> y = gated(kernels_, gate, up);
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double g = gate[i];
    worst = std::max(worst, ulps(y[i], g / (1 + std::exp(-g))));
  }
  EXPECT_LT(worst, 3);  // exp 0.9, addition and division half a unit each
}

// The forms of DeepSeek-V4 and gpt-oss (transformers' DeepseekV4 and GptOss experts).
TEST_P(VectorKernelsTest, clamped_gates_follow_their_formulas) {
  for (const Gating& gating :
       {Gating{.limit = 10}, Gating{.limit = 7, .alpha = 1.702F, .offset = 1}}) {
    for (const std::int64_t n : sizes()) {
      const auto gate = normal_numbers(n, 21, 8);
      const auto up = normal_numbers(n, 22, 8);
      const std::vector<float> y = gated(kernels_, gate, up, gating);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double limit = gating.limit;
        const double g = std::min<double>(gate[i], limit);
        const double u = std::clamp<double>(up[i], -limit, limit);
        const double expected = g / (1 + std::exp(-static_cast<double>(gating.alpha) * g)) *
                                (u + static_cast<double>(gating.offset));
        ASSERT_NEAR(y[i], expected, 1e-5 * (1 + std::fabs(expected)));
      }
    }
  }
}

TEST_P(VectorKernelsTest, add_adds) {
  for (const std::int64_t n : sizes()) {
    const auto x = special_numbers(n, 24);
    auto y = special_numbers(n, 25);
    std::vector<float> expected(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) expected[i] = y[i] + x[i];
    kernels_.add(x.data(), n, y.data());
    ASSERT_EQ(first_difference(y, expected), -1) << n;
  }
}

TEST_P(VectorKernelsTest, swiglu_of_special_values) {
  const std::vector<float> gate = {0.0F, kInf, -1e30F, 200.0F, kNan, 3.0F, -kHuge};
  const std::vector<float> up = {5.0F, 2.0F, 1.0F, 2.0F, 1.0F, kInf, 1.0F};
  EXPECT_EQ(first_difference(gated(kernels_, gate, up),
                             std::vector<float>{0.0F, kInf, -0.0F, 400.0F, kNan, kInf, -0.0F}),
            -1);
}

TEST_P(VectorKernelsTest, add_scaled_is_a_fused_multiply_add) {
  for (const std::int64_t n : sizes()) {
    const auto x = special_numbers(n, 4);
    auto y = special_numbers(n, 5);
    std::vector<float> expected(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) expected[i] = std::fma(0.3F, x[i], y[i]);
    kernels_.add_scaled(x.data(), 0.3F, n, y.data());
    ASSERT_EQ(first_difference(y, expected), -1) << n;
  }
}

TEST_P(VectorKernelsTest, rotate_turns_pairs_and_rotate_back_turns_them_back) {
  for (const std::int64_t half : sizes()) {
    const auto cosines = special_numbers(half, 6);
    const auto sines = special_numbers(half, 7);
    auto head = special_numbers(2 * half + 5, 8);
    std::vector<float> turned = head;
    std::vector<float> back = head;
    for (std::size_t i = 0; i < cosines.size(); ++i) {
      const float a = head[i];
      const float b = head[i + cosines.size()];
      turned[i] = a * cosines[i] - b * sines[i];
      turned[i + cosines.size()] = b * cosines[i] + a * sines[i];
      back[i] = a * cosines[i] + b * sines[i];
      back[i + cosines.size()] = b * cosines[i] - a * sines[i];
    }
    auto other = head;
    kernels_.rotate({cosines.data(), sines.data(), half}, head.data());
    ASSERT_EQ(first_difference(head, turned), -1) << half;
    kernels_.rotate_back({cosines.data(), sines.data(), half}, other.data());
    ASSERT_EQ(first_difference(other, back), -1) << half;
  }
}

TEST_P(VectorKernelsTest, neighbours_turn_as_halves_do) {
  for (const std::int64_t half : sizes()) {
    const auto cosines = special_numbers(half, 6);
    const auto sines = special_numbers(half, 7);
    auto halves = special_numbers(2 * half + 5, 8);
    auto pairs = halves;
    const auto as_pairs = [&] {
      auto result = halves;
      for (std::int64_t i = 0; i < half; ++i) {
        result[static_cast<std::size_t>(2 * i)] = halves[static_cast<std::size_t>(i)];
        result[static_cast<std::size_t>(2 * i + 1)] = halves[static_cast<std::size_t>(half + i)];
      }
      return result;
    };
    pairs = as_pairs();
    const RotaryAngles of_halves{cosines.data(), sines.data(), half};
    const RotaryAngles of_pairs{cosines.data(), sines.data(), half, RotaryForm::pairs};
    kernels_.rotate(of_halves, halves.data());
    kernels_.rotate(of_pairs, pairs.data());
    ASSERT_EQ(first_difference(pairs, as_pairs()), -1) << half;
    kernels_.rotate_back(of_halves, halves.data());
    kernels_.rotate_back(of_pairs, pairs.data());
    ASSERT_EQ(first_difference(pairs, as_pairs()), -1) << half;
  }
}

TEST_P(VectorKernelsTest, all_finite_sees_infinities_and_nan_of_either_sign) {
  using Limits = std::numeric_limits<float>;
  for (const std::int64_t n : sizes()) {
    std::vector<float> values(static_cast<std::size_t>(n) + 1, -kHuge);
    values.back() = kNan;  // behind the end
    EXPECT_TRUE(kernels_.all_finite(values.data(), n)) << n;
    for (std::size_t i = 0; i + 1 < values.size(); i += 1 + i / 70) {
      for (const float bad : {kInf, -kInf, kNan, -kNan, Limits::signaling_NaN()}) {
        values[i] = bad;
        ASSERT_FALSE(kernels_.all_finite(values.data(), n)) << n << " " << i;
      }
      values[i] = Limits::denorm_min();
    }
  }
}

// ---- memory ----

/// Runs with a's memory as output, and with memory apart; `run(n, a, b, out)`.
template <typename Run>
void expect_in_place_equal(Run run) {
  for (const std::int64_t n : sizes()) {
    const auto a = normal_numbers(n, 9);
    const auto b = normal_numbers(n, 10);
    std::vector<float> apart(a.size() + 16, kUnwritten);
    run(n, a.data(), b.data(), apart.data());
    EXPECT_EQ(std::count(apart.begin() + n, apart.end(), kUnwritten), 16) << n;
    apart.resize(a.size());
    auto over_a = a;
    run(n, over_a.data(), b.data(), over_a.data());
    ASSERT_EQ(first_difference(over_a, apart), -1) << n;
    auto over_b = b;
    run(n, a.data(), over_b.data(), over_b.data());
    ASSERT_EQ(first_difference(over_b, apart), -1) << n;
  }
}

TEST_P(VectorKernelsTest, rms_norm_works_in_place) {
  expect_in_place_equal([&](std::int64_t n, const float* x, const float* weight, float* y) {
    kernels_.rms_norm(x, weight, 1e-5F, n, y);
  });
}

TEST_P(VectorKernelsTest, sigmoid) {
  for (const std::int64_t n : sizes()) {
    const auto x = normal_numbers(n, 14, 5);
    auto y = x;
    kernels_.sigmoid(y.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], 1 / (1 + std::exp(-static_cast<double>(x[i]))), 2e-7) << x[i];
    }
  }
  std::array<float, 3> ends = {-200, 200, std::numeric_limits<float>::quiet_NaN()};
  kernels_.sigmoid(ends.data(), 3);
  EXPECT_NEAR(ends[0], 0, 1e-30);
  EXPECT_EQ(ends[1], 1);
  EXPECT_TRUE(std::isnan(ends[2]));
}

TEST_P(VectorKernelsTest, in_place_kernels_write_n_elements) {
  for (const std::int64_t n : sizes()) {
    auto x = normal_numbers(n, 11);
    const auto y = x;
    x.resize(x.size() + 16, kUnwritten);
    kernels_.softmax(x.data(), n);
    kernels_.sigmoid(x.data(), n);
    kernels_.add_scaled(y.data(), 2, n, x.data());
    EXPECT_EQ(std::count(x.begin() + n, x.end(), kUnwritten), 16) << n;
  }
}

// ---- the same bits everywhere ----

/// Everything that a table computes from numbers like these, one after the other.
std::vector<float> all_results(const VectorKernels& kernels, const std::vector<float>& a,
                               const std::vector<float>& b) {
  const auto n = static_cast<std::int64_t>(a.size());
  std::vector<float> results;
  const auto keep = [&](const std::vector<float>& y) {
    results.insert(results.end(), y.begin(), y.end());
  };
  std::vector<float> y(a.size());
  kernels.rms_norm(a.data(), b.data(), 1e-6F, n, y.data());
  keep(y);
  kernels.rms_norm_gradient({a.data(), b.data(), 1e-6F, n}, b.data(), y.data());
  keep(y);
  keep(gated(kernels, a, b));
  keep(gated(kernels, a, b, {.limit = 1, .alpha = 1.702F, .offset = 1}));
  y = b;
  kernels.add_scaled(a.data(), 1.7F, n, y.data());
  keep(y);
  y = a;
  kernels.softmax(y.data(), n);
  keep(y);
  y = a;
  kernels.sigmoid(y.data(), n);
  keep(y);
  results.push_back(kernels.log_sum_exp(a.data(), n));
  return results;
}

TEST_P(VectorKernelsTest, gives_the_bits_of_scalar) {
  const VectorKernels& scalar = find_vector_kernels(Isa::scalar);
  for (const std::int64_t n : sizes()) {
    for (const float scale : {1e-40F, 1e-3F, 1.0F, 20.0F, 1e20F, 1e38F}) {
      const auto a = normal_numbers(n, 12, scale);
      const auto b = normal_numbers(n, 13, scale);
      ASSERT_EQ(first_difference(all_results(kernels_, a, b), all_results(scalar, a, b)), -1)
          << n << " " << scale;
    }
    for (unsigned seed = 0; seed < 6; ++seed) {
      const auto a = special_numbers(n, seed);
      const auto b = special_numbers(n, seed + 20);
      ASSERT_EQ(first_difference(all_results(kernels_, a, b), all_results(scalar, a, b)), -1)
          << n << " seed " << seed;
    }
  }
}

TEST_P(VectorKernelsTest, exponentials_have_the_bits_of_scalar) {
  const VectorKernels& scalar = find_vector_kernels(Isa::scalar);
  std::vector<float> x;  // every 4099th float there is
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 4099) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  const std::vector<float> ones(x.size(), 1);
  EXPECT_EQ(first_difference(gated(kernels_, x, ones), gated(scalar, x, ones)), -1);
}

}  // namespace
}  // namespace moesaic
