#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "tests/support/amx_assembly.h"
#include "tests/support/amx_emulator.h"

// The five products against models that are written for reading. On a CPU with AMX the same tests
// compare the hardware with the models.

namespace moesaic::test {
namespace {

using Word = std::uint32_t;
using Words = std::vector<Word>;

struct Operands {
  std::size_t rows, depth, columns;
  Words a, b, c;  // [rows, depth], [depth, columns], [rows, columns]
};

struct Shape {
  std::size_t rows, depth, columns;
};
constexpr Shape kShapes[] = {{16, 16, 16}, {1, 1, 1},  {5, 16, 16}, {16, 3, 16},
                             {16, 16, 7},  {3, 5, 11}, {16, 1, 16}, {1, 16, 15}};

Operands make_operands(const Shape& shape, const std::function<Word()>& factors,
                       const std::function<Word()>& sums) {
  const auto fill = [](std::size_t size, const std::function<Word()>& next) {
    Words words(size);
    for (Word& word : words) word = next();
    return words;
  };
  return {shape.rows,
          shape.depth,
          shape.columns,
          fill(shape.rows * shape.depth, factors),
          fill(shape.depth * shape.columns, factors),
          fill(shape.rows * shape.columns, sums)};
}

struct Instruction {
  const char* name;
  void (*execute)();  // tile 0 += tile 1 * tile 2
  Word (*model)(Word c, std::span<const Word> a, std::span<const Word> b);  // [depth] each
};

/// C after the instruction. Tiles and memory are exactly as large as the operands.
Words run(const Operands& operands, const Instruction& instruction) {
  TileConfiguration configuration;
  configuration.set(0, operands.rows, operands.columns * 4);
  configuration.set(1, operands.rows, operands.depth * 4);
  configuration.set(2, operands.depth, operands.columns * 4);
  Words c = operands.c;
  const auto row_bytes = [](std::size_t words) { return static_cast<std::ptrdiff_t>(words * 4); };
  configure_tiles(configuration);
  load_tile<0>(c.data(), row_bytes(operands.columns));
  load_tile<1>(operands.a.data(), row_bytes(operands.depth));
  load_tile<2>(operands.b.data(), row_bytes(operands.columns));
  instruction.execute();
  store_tile<0>(c.data(), row_bytes(operands.columns));
  release_tiles();
  return c;
}

Words run_model(const Operands& operands, const Instruction& instruction) {
  Words c = operands.c;
  Words column(operands.depth);
  for (std::size_t n = 0; n < operands.columns; ++n) {
    for (std::size_t k = 0; k < operands.depth; ++k)
      column[k] = operands.b[k * operands.columns + n];
    for (std::size_t m = 0; m < operands.rows; ++m) {
      Word& sum = c[m * operands.columns + n];
      sum = instruction.model(
          sum, std::span(operands.a).subspan(m * operands.depth, operands.depth), column);
    }
  }
  return c;
}

// --- bf16 ---

float flush(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}

/// Rounds to the 24 bits of a float as if exponents had no lower end, then flushes.
float round_and_flush(double value) {
  constexpr double kScale = 0x1p64;
  const bool is_subnormal = std::fabs(value) < 1 && std::fabs(static_cast<float>(value * kScale)) <
                                                        std::numeric_limits<float>::min() * kScale;
  return is_subnormal ? std::copysign(0.0F, static_cast<float>(value)) : static_cast<float>(value);
}

/// x * y + c of two bf16 and a float, rounded once. In double the product is exact. The sum either
/// is, or the smaller term is so much smaller that the sum is not near the middle between two
/// floats: rounding it again is harmless.
float model_fma(std::uint16_t x, std::uint16_t y, float c) {
  const double product = double{flush(to_float(BFloat16{x}))} * flush(to_float(BFloat16{y}));
  return round_and_flush(product + flush(c));
}

float model_add(float a, float b) {
  return round_and_flush(double{flush(a)} + flush(b));
}

Word model_bf16(Word c, std::span<const Word> a, std::span<const Word> b) {
  float even = 0;
  float odd = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    even = model_fma(static_cast<std::uint16_t>(a[k]), static_cast<std::uint16_t>(b[k]), even);
    odd = model_fma(static_cast<std::uint16_t>(a[k] >> 16), static_cast<std::uint16_t>(b[k] >> 16),
                    odd);
  }
  return std::bit_cast<Word>(model_add(std::bit_cast<float>(c), model_add(even, odd)));
}

const Instruction kBf16{"tdpbf16ps",
                        [] {
                          asm volatile("tdpbf16ps %%tmm2, %%tmm1, %%tmm0" ::: "memory");
                        },
                        model_bf16};

/// Bits of a float, the same for every NaN.
Word canonical(Word bits) {
  return std::isnan(std::bit_cast<float>(bits)) ? 0x7fc00000U : bits;
}

void expect_bf16_model(const Operands& operands) {
  const Words found = run(operands, kBf16);
  const Words expected = run_model(operands, kBf16);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(canonical(found[i]), canonical(expected[i]))
        << std::bit_cast<float>(found[i]) << " instead of " << std::bit_cast<float>(expected[i])
        << " at " << i << " of " << operands.rows << " x " << operands.columns;
  }
}

class Bf16Products : public testing::Test {
 protected:
  Bf16Products() { install_amx_emulator(); }

  /// Exponents of two, both ends included; -127 makes subnormals.
  struct Range {
    int low, high;
  };
  /// The bits of an f32, either sign.
  Word random_float(Range range) {
    const int exponent = std::uniform_int_distribution<int>(range.low, range.high)(engine_);
    const Word bits = static_cast<Word>(engine_());
    return (bits & 0x807fffffU) | static_cast<Word>(exponent + 127) << 23;
  }
  Word random_pair(Range range) {
    return (random_float(range) >> 16) | (random_float(range) & 0xffff0000U);
  }
  Word random_bits() { return static_cast<Word>(engine_()); }

  std::mt19937_64 engine_{20240229};
};

TEST_F(Bf16Products, agree_with_their_model) {
  // Ordinary values; sums that cancel; products around the smallest normal number; subnormal
  // factors; products around the largest.
  const Range ranges[] = {{-3, 3}, {0, 0}, {-66, -60}, {-127, -1}, {60, 64}};
  for (const Range& range : ranges) {
    const Range squares{std::max(2 * range.low, -127), std::min(2 * range.high, 127)};
    for (const Shape& shape : kShapes) {
      expect_bf16_model(make_operands(
          shape, [&] { return random_pair(range); }, [&] { return random_float(squares); }));
    }
  }
}

TEST_F(Bf16Products, agree_with_their_model_on_any_bits) {
  // One NaN hides all else in its sum, and a deep sum of random bits nearly always has one.
  for (const std::size_t depth : {1, 1, 1, 2, 16}) {
    expect_bf16_model(make_operands(
        {16, depth, 16}, [&] { return random_bits(); }, [&] { return random_bits(); }));
  }
}

TEST_F(Bf16Products, agree_with_their_model_on_special_values) {
  // Zeros, subnormals, the smallest and largest normal numbers, one, infinities.
  const Word specials[] = {0,      0x8000, 1,      0x807f, 0x0080, 0x8080,
                           0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80, 0xff80};
  for (const std::size_t kinds : {std::size(specials) - 2, std::size(specials)}) {
    std::uniform_int_distribution<std::size_t> kind(0, kinds - 1);
    const auto special = [&] { return specials[kind(engine_)]; };
    for (const Shape& shape : kShapes) {
      expect_bf16_model(make_operands(
          shape, [&] { return special() | special() << 16; }, [&] { return special() << 16; }));
    }
  }
}

Word run_one(Word a, Word b, float c) {
  return run({1, 1, 1, {a}, {b}, {std::bit_cast<Word>(c)}}, kBf16)[0];
}
constexpr Word bf16_pair(float even, float odd) {
  return std::bit_cast<Word>(even) >> 16 | (std::bit_cast<Word>(odd) & 0xffff0000U);
}

// Values worked out by hand, so that model and emulator cannot share a mistake.
TEST_F(Bf16Products, round_and_flush_in_the_order_of_the_manual) {
  const auto value = [](Word bits) { return std::bit_cast<float>(bits); };
  EXPECT_EQ(value(run_one(bf16_pair(2, 3), bf16_pair(5, 7), 0.5F)), 31.5F);
  // The pair is added up first: 2^24 + 1 + 1 the other way round would stay 2^24.
  EXPECT_EQ(value(run_one(bf16_pair(1, 1), bf16_pair(1, 1), 0x1p24F)), 0x1p24F + 2);
  // Subnormal operands count as zero, in A and in C.
  EXPECT_EQ(value(run_one(bf16_pair(0x1p-130F, 0), bf16_pair(0x1p100F, 0), 0)), 0.0F);
  EXPECT_EQ(run_one(0, 0, -0x1p-130F), 0U);
  EXPECT_EQ(run_one(bf16_pair(-0.0F, -0.0F), bf16_pair(1, 1), -0x1p-130F), 0U);  // 0 + -0 is 0
  // A subnormal result becomes a zero of its sign, so that even + odd is -0.
  const Word tiny = bf16_pair(0x1p-65F, 0x1p-65F);
  EXPECT_EQ(run_one(tiny, bf16_pair(-0x1p-65F, -0x1p-65F), -0.0F), 0x80000000U);
  // 2^-126 - 2^-150 has 24 bits and is flushed; 2^-126 - 2^-151 rounds to 2^-126 before that.
  for (const auto& [factor, expected] : {std::pair{0x1p-75F, 0.0F}, {0x1p-76F, 0x1p-126F}}) {
    const Operands operands{1,
                            2,
                            1,
                            {bf16_pair(0x1p-63F, 0), bf16_pair(factor, 0)},
                            {bf16_pair(0x1p-63F, 0), bf16_pair(-0x1p-75F, 0)},
                            {0}};
    EXPECT_EQ(value(run(operands, kBf16)[0]), expected);
  }
}

TEST_F(Bf16Products, neither_read_nor_write_mxcsr) {
  const Operands operands = make_operands(
      kShapes[0],
      [&] {
        return random_pair({-70, 2});
      },
      [&] {
        return random_float({-127, 2});
      });
  const Words normal = run(operands, kBf16);
  const unsigned saved = _mm_getcsr();
  constexpr unsigned kUpwardAndNothingMasked = 0x4000;
  _mm_setcsr(kUpwardAndNothingMasked);
  const Words upward = run(operands, kBf16);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(after, kUpwardAndNothingMasked);
  EXPECT_EQ(normal, upward);
}

// --- int8 ---

template <typename A, typename B>
Word model_int8(Word c, std::span<const Word> a, std::span<const Word> b) {
  std::int64_t sum = c;
  for (std::size_t k = 0; k < a.size(); ++k) {
    for (int shift = 0; shift < 32; shift += 8) {
      sum += static_cast<A>(a[k] >> shift) * static_cast<B>(b[k] >> shift);
    }
  }
  return static_cast<Word>(sum);  // modulo 2^32
}

using S = std::int8_t;
using U = std::uint8_t;
const Instruction kInt8[] = {
    {"tdpbssd",
     [] {
       asm volatile("tdpbssd %%tmm2, %%tmm1, %%tmm0" ::: "memory");
     },
     model_int8<S, S>},
    {"tdpbsud",
     [] {
       asm volatile("tdpbsud %%tmm2, %%tmm1, %%tmm0" ::: "memory");
     },
     model_int8<S, U>},
    {"tdpbusd",
     [] {
       asm volatile("tdpbusd %%tmm2, %%tmm1, %%tmm0" ::: "memory");
     },
     model_int8<U, S>},
    {"tdpbuud",
     [] {
       asm volatile("tdpbuud %%tmm2, %%tmm1, %%tmm0" ::: "memory");
     },
     model_int8<U, U>},
};

TEST(Int8Products, agree_with_their_models) {
  install_amx_emulator();
  std::mt19937_64 engine(7);
  for (const Instruction& instruction : kInt8) {
    for (const Shape& shape : kShapes) {
      const auto random = [&] { return static_cast<Word>(engine()); };
      const Operands operands = make_operands(shape, random, random);
      EXPECT_EQ(run(operands, instruction), run_model(operands, instruction)) << instruction.name;
    }
  }
}

TEST(Int8Products, wrap_around_at_the_extremes) {
  install_amx_emulator();
  // 64 products of bytes 0x80 and 0x80, or 0xff and 0x80, added to a C next to the limits.
  const auto extreme = [](Word a, Word b, Word c, int instruction) {
    const Operands operands{1, 16, 1, Words(16, a), Words(16, b), {c}};
    return run(operands, kInt8[instruction])[0];
  };
  EXPECT_EQ(extreme(0x80808080U, 0x80808080U, 0x7fffffffU, 0), 0x7fffffffU + 64 * 128 * 128);
  EXPECT_EQ(extreme(0x80808080U, 0xffffffffU, 0x80000000U, 1), 0x80000000U - 64 * 128 * 255);
  EXPECT_EQ(extreme(0xffffffffU, 0x80808080U, 0x80000000U, 2), 0x80000000U - 64 * 255 * 128);
  EXPECT_EQ(extreme(0xffffffffU, 0xffffffffU, 0xffffffffU, 3), 64U * 255 * 255 - 1);
}

}  // namespace
}  // namespace moesaic::test
