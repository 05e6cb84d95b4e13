#include "kernels/nvfp4_activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "kernels/formats/elements.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

/// The definition, element by element, by the library of codes; with `given` in the place of g, and
/// without it in the results.
std::vector<float> reference(const std::vector<float>& row, float given = 0) {
  float amax = 0;
  for (const float value : row) amax = std::max(amax, std::fabs(value));
  const auto g =
      given != 0
          ? given
          : static_cast<float>(std::exp2(std::ceil(std::log2(static_cast<double>(amax) / 2688))));
  std::vector<float> result(row.size());
  for (std::size_t first = 0; first < row.size(); first += 16) {
    const std::size_t end = std::min(row.size(), first + 16);
    float largest = 0;
    for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(row[i]));
    const float s = e4m3_to_float(nearest_e4m3(largest / (6 * g)));
    for (std::size_t i = first; i < end; ++i) {
      const float inverse = s == 0 ? 0 : 1 / (s * g);
      result[i] = e2m1_to_float(nearest_e2m1(row[i] * inverse)) * s * (given != 0 ? 1 : g);
    }
  }
  return result;
}

TEST(Nvfp4Activations, follow_their_definition) {
  for (const std::int64_t n : {1, 15, 16, 17, 64, 100, 2048}) {
    for (const float size : {1e-20F, 0.01F, 1.0F, 300.0F, 1e20F}) {
      std::vector<float> row = normal_numbers(n, static_cast<unsigned>(n), size);
      const std::vector<float> expected = reference(row);
      round_to_nvfp4(row);
      EXPECT_EQ(row, expected) << n << " of size " << size;
    }
  }
}

TEST(Nvfp4Activations, take_a_scale_that_is_given) {
  for (const float scale : {0.0007F, 0.31F, 1e-5F}) {
    std::vector<float> row = normal_numbers(100, 9);
    row[3] = 1e4F;  // above what small scales can hold: the largest magnitude
    row[5] = -1e-9F;
    const std::vector<float> expected = reference(row, scale);
    round_to_nvfp4(row, scale);
    EXPECT_EQ(row, expected) << scale;
    for (const float value : row) EXPECT_EQ(to_float(to_bfloat16(value)), value);
  }
}

TEST(Nvfp4Activations, are_exact_in_bf16) {
  std::vector<float> row = normal_numbers(4096, 3);
  row[7] = 1e4F;  // an outlier: other groups have small scales
  round_to_nvfp4(row);
  for (const float value : row) EXPECT_EQ(to_float(to_bfloat16(value)), value);
}

TEST(Nvfp4Activations, ties_go_to_the_even_code) {
  // The largest magnitude, 6 * 2^k, gives the group a scale of exactly 2^k.
  std::vector<float> row = {6, 0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5, -0.25F, -5};
  round_to_nvfp4(row);
  EXPECT_EQ(row, (std::vector<float>{6, 0, 1, 1, 2, 2, 4, 4, -0.0F, -4}));
}

TEST(Nvfp4Activations, zeros_stay_and_what_is_not_finite_becomes_nan) {
  std::vector<float> zeros(40);
  round_to_nvfp4(zeros);
  EXPECT_EQ(zeros, std::vector<float>(40));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> row(20, 1.0F);
    row[3] = bad;
    round_to_nvfp4(row);
    for (const float value : row) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Nvfp4Activations, are_within_the_error_of_four_bits) {
  const std::vector<float> row = normal_numbers(4096, 5);
  std::vector<float> rounded = row;
  round_to_nvfp4(rounded);
  double difference = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    difference += std::fabs(static_cast<double>(rounded[i] - row[i]));
    magnitude += std::fabs(static_cast<double>(row[i]));
  }
  EXPECT_LT(difference / magnitude, 0.11);
}

}  // namespace
}  // namespace moesaic
