#include "src/moe/wire_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/token_scale.h"
#include "kernels/kernel_table.h"
#include "src/moe/int8_codes.h"
#include "src/moe/int8_rows.h"

namespace moesaic {
namespace {

const VectorKernels& vector_kernels() {
  return find_vector_kernels(Isa::scalar);
}

std::vector<float> some_numbers(std::size_t n) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> numbers(n);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

std::vector<float> there_and_back(WireForm form, const std::vector<float>& numbers) {
  const WireCodec codec(form, vector_kernels());
  const std::int64_t n = std::ssize(numbers);
  std::vector<std::byte> row(static_cast<std::size_t>(codec.bytes(n)));
  codec.encode(numbers.data(), n, row.data());
  std::vector<float> back;
  codec.decode(row.data(), n, [&](std::int64_t first, std::span<const float> part) {
    EXPECT_EQ(first, std::ssize(back));
    back.insert(back.end(), part.begin(), part.end());
  });
  // The sum of a token takes the same numbers.
  std::vector<float> sum(numbers.size(), 1.0F);
  codec.add_scaled(row.data(), 0.25F, sum);
  for (std::size_t i = 0; i < back.size(); ++i) {
    if (!std::isfinite(back[i])) continue;
    EXPECT_EQ(sum[i], std::fma(0.25F, back[i], 1.0F));
  }
  return back;
}

TEST(WireForm, rows_have_the_sizes_that_docs_tell) {
  EXPECT_EQ(WireCodec::bytes(WireForm::exact, 2048), 8192);
  EXPECT_EQ(WireCodec::bytes(WireForm::bf16, 2048), 4096);
  EXPECT_EQ(WireCodec::bytes(WireForm::int8, 2048), 2048 + 64);
  EXPECT_EQ(WireCodec::bytes(WireForm::int8, 130), 132 + 8);
}

TEST(WireForm, bf16_is_the_nearest) {
  const std::vector<float> numbers = some_numbers(300);
  const std::vector<float> back = there_and_back(WireForm::bf16, numbers);
  ASSERT_EQ(back.size(), numbers.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i], to_float(to_bfloat16(numbers[i])));
  }
}

TEST(WireForm, int8_has_a_scale_for_128_numbers) {
  std::vector<float> numbers = some_numbers(300);
  for (std::size_t i = 128; i < 256; ++i) numbers[i] *= 1e-4F;
  const std::vector<float> back = there_and_back(WireForm::int8, numbers);
  ASSERT_EQ(back.size(), numbers.size());
  for (std::size_t first = 0; first < numbers.size(); first += 128) {
    const std::size_t end = std::min(first + 128, numbers.size());
    float largest = 0;
    for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(numbers[i]));
    for (std::size_t i = first; i < end; ++i) {
      const float code = std::nearbyint(numbers[i] * (127 / largest));
      EXPECT_EQ(back[i], code * (largest / 127)) << i;
    }
  }
}

TEST(WireForm, int8_keeps_zeros_and_marks_what_is_not_finite) {
  std::vector<float> numbers(384, 0.0F);
  numbers[130] = INFINITY;
  numbers[256] = 1;
  const std::vector<float> back = there_and_back(WireForm::int8, numbers);
  EXPECT_EQ(back[0], 0);
  EXPECT_TRUE(std::isnan(back[130]));
  EXPECT_TRUE(std::isnan(back[131]));
  EXPECT_EQ(back[256], 127 * (1.0F / 127));
  EXPECT_EQ(back[257], 0);
}

/// What products make of a row of bf16: codes, and a scale for `scale_depth` numbers.
struct Codes {
  std::vector<int> codes;
  std::vector<float> scales;
  bool operator==(const Codes&) const = default;
};

Codes codes_of(const std::vector<float>& row, std::size_t scale_depth) {
  Codes made;
  for (std::size_t first = 0; first < row.size(); first += scale_depth) {
    const std::size_t count = std::min(scale_depth, row.size() - first);
    const TokenScale scale =
        token_scale(largest_bits(row.data() + first, static_cast<std::int64_t>(count)));
    made.scales.push_back(scale.scale);
    for (std::size_t i = first; i < first + count; ++i) {
      made.codes.push_back(static_cast<int>(std::nearbyint(row[i] * scale.inverse)));
    }
  }
  return made;
}

TEST(Int8Rows, products_make_the_same_codes_of_what_arrives) {
  for (const std::int64_t depth : {40, 128, 300, 2048}) {
    for (const auto scales : {Int8Rows::Scales::row, Int8Rows::Scales::block}) {
      const Int8Rows rows(depth, scales);
      const bool one_scale = scales == Int8Rows::Scales::row;
      EXPECT_EQ(rows.bytes(), depth + 4 * (one_scale ? 1 : (depth + 127) / 128));
      std::vector<float> sent = some_numbers(static_cast<std::size_t>(depth));
      for (std::size_t i = 0; i < sent.size(); i += 3) sent[i] *= 0.01F;
      std::vector<std::byte> row(static_cast<std::size_t>(rows.bytes()));
      rows.encode(sent.data(), row.data());
      std::vector<float> arrived;
      rows.decode(row.data(), [&](std::int64_t, std::span<const float> part) {
        for (const float number : part) arrived.push_back(to_float(to_bfloat16(number)));
      });
      for (float& number : sent) number = to_float(to_bfloat16(number));
      const std::size_t scale_depth = one_scale ? sent.size() : 128;
      EXPECT_EQ(codes_of(arrived, scale_depth), codes_of(sent, scale_depth)) << depth;
    }
  }
}

TEST(Int8Rows, zeros_and_what_is_not_finite_stay) {
  const Int8Rows rows(8, Int8Rows::Scales::row);
  std::vector<std::byte> row(static_cast<std::size_t>(rows.bytes()));
  const auto largest = [&](const std::vector<float>& sent) {
    rows.encode(sent.data(), row.data());
    std::uint32_t bits = 0;
    rows.decode(row.data(), [&](std::int64_t, std::span<const float> part) {
      bits = largest_bits(part.data(), std::ssize(part));
    });
    return std::bit_cast<float>(bits);
  };
  EXPECT_EQ(largest({0, 0, 0, 0, 0, 0, 0, 0}), 0);
  EXPECT_EQ(largest({0, 0x1p-110F, 0, 0, 0, 0, 0, 0}), 0);
  EXPECT_EQ(largest({0, 1, 0, -INFINITY, 0, 0, 0, 0}), INFINITY);
  EXPECT_TRUE(std::isnan(largest({0, 1, 0, 0, NAN, 0, 0, 0})));
}

}  // namespace
}  // namespace moesaic
