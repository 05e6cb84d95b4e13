#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/kernel_table.h"
#include "tests/kernels/gemm_case.h"
#include "tests/kernels/gemm_models.h"

namespace moesaic {
namespace {

constexpr std::int64_t kRowCounts[] = {0, 1, 2, 3, 5, 6, 7, 15, 16, 17, 33, 49};
constexpr std::int64_t kDepths[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 257, 1024};
constexpr std::int64_t kMaxRows = 49;
constexpr std::int64_t kMaxPanels = 9;

using Engine = std::mt19937_64;

/// Values whose magnitudes spread over 2^low to 2^high.
std::function<float()> spread(Engine& engine, int low, int high) {
  return [&engine, low, high] {
    const float mantissa = std::uniform_real_distribution<float>(1, 2)(engine);
    const int exponent = std::uniform_int_distribution<int>(low, high)(engine);
    return std::ldexp((engine() & 1) != 0 ? mantissa : -mantissa, exponent);
  };
}

/// What result (row, column) of the case has to be, bit for bit.
float expected_result(const GemmKernel& kernel, const GemmCase& product, std::int64_t row,
                      std::int64_t column) {
  const auto depth = static_cast<std::size_t>(product.depth);
  if (kernel.format == Format::f32) {
    return f32_product({product.x.data() + row * product.depth, depth},
                       {product.w.data() + column * product.depth, depth});
  }
  const std::vector<BFloat16> x = product.x_bf16(row);
  const std::vector<BFloat16> w = product.w_bf16(column);
  return kernel.isa == Isa::avx512_bf16 ? dpbf16_product(x, w) : tile_order_product(x, w);
}

std::string test_name(const testing::TestParamInfo<const GemmKernel*>& kernel) {
  std::string name = kernel.param->name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

class EveryGemmKernel : public testing::TestWithParam<const GemmKernel*> {
 protected:
  void SetUp() override {
    if (!is_usable(*GetParam())) GTEST_SKIP() << "this CPU cannot run " << GetParam()->name;
  }

  void expect_model(const GemmCase& product, const std::vector<float>& out) const {
    for (std::int64_t r = 0; r < product.num_rows; ++r) {
      for (std::int64_t c = 0; c < product.columns(); ++c) {
        const float expected = expected_result(*GetParam(), product, r, c);
        const float found = out[static_cast<std::size_t>(r * product.columns() + c)];
        ASSERT_EQ(result_bits(found), result_bits(expected))
            << GetParam()->name << " gave " << found << " for " << expected << " at row " << r
            << " of " << product.num_rows << ", column " << c << ", depth " << product.depth;
      }
    }
  }

  Engine engine_{20240229};
};

/// f32 products, unlike bf16 ones, are not flushed and use the caller's settings.
class EveryBf16Kernel : public EveryGemmKernel {};

std::vector<const GemmKernel*> kernels_of(std::initializer_list<Format> formats) {
  std::vector<const GemmKernel*> kernels;
  for (const GemmKernel* kernel : all_gemm_kernels()) {
    if (std::ranges::find(formats, kernel->format) != formats.end()) kernels.push_back(kernel);
  }
  return kernels;
}

// The model is evaluated once a depth; every shape is a corner of that product.
TEST_P(EveryGemmKernel, gives_the_bits_of_its_model_at_every_shape) {
  const GemmKernel& kernel = *GetParam();
  for (const std::int64_t depth : kDepths) {
    const GemmCase product = make_gemm_case(kMaxRows, kMaxPanels, depth, spread(engine_, -6, 2));
    const std::vector<float> whole = product.run(kernel);
    expect_model(product, whole);
    const OwnedMatrix weights = product.pack_weights({.format = kernel.format});
    for (const std::int64_t num_rows : kRowCounts) {
      const GemmCase::Rows rows = product.rows(num_rows, RowSource::Element::f32);
      for (std::int64_t num_panels = 0; num_panels <= kMaxPanels; ++num_panels) {
        const std::vector<float> out = run_part(kernel, rows.source, weights.matrix, num_panels);
        const std::int64_t columns = num_panels * kPanelColumns;
        for (std::int64_t i = 0; i < std::ssize(out); ++i) {
          const float expected =
              whole[static_cast<std::size_t>(i / columns * product.columns() + i % columns)];
          ASSERT_EQ(result_bits(out[static_cast<std::size_t>(i)]), result_bits(expected))
              << kernel.name << ", " << num_rows << " rows, " << num_panels << " panels, depth "
              << depth << ", row " << i / columns << ", column " << i % columns;
        }
      }
    }
  }
}

// So many rows are more than kNearRowBytes in every packed form: they are taken in ranges of steps,
// by AMX in triples of tiles, and a few are not.
TEST_P(EveryGemmKernel, gives_a_row_the_same_bits_among_many_over_a_great_depth) {
  const GemmKernel& kernel = *GetParam();
  const GemmCase product = make_gemm_case(97, kMaxPanels, 5600, spread(engine_, -6, 2));
  const std::vector<float> whole = product.run(kernel);
  const OwnedMatrix weights = product.pack_weights({.format = kernel.format});
  const GemmCase::Rows rows = product.rows(17, RowSource::Element::f32);
  const std::vector<float> out = run_part(kernel, rows.source, weights.matrix, kMaxPanels);
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(result_bits(out[i]), result_bits(whole[i])) << kernel.name << " at " << i;
  }
}

// Each of the depth + 2 roundings is at most half a unit of the sum of magnitudes so far.
TEST_P(EveryGemmKernel, is_near_the_product_in_double_precision) {
  const GemmKernel& kernel = *GetParam();
  for (const std::int64_t depth : kDepths) {
    const GemmCase product = make_gemm_case(7, 3, depth, spread(engine_, -6, 2));
    const std::vector<float> out = product.run(kernel);
    const auto operand = [&](float value) {
      return static_cast<double>(kernel.format == Format::bf16 ? to_float(to_bfloat16(value))
                                                               : value);
    };
    for (std::int64_t r = 0; r < product.num_rows; ++r) {
      for (std::int64_t c = 0; c < product.columns(); ++c) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          const double term = operand(product.x[static_cast<std::size_t>(r * depth + k)]) *
                              operand(product.w[static_cast<std::size_t>(c * depth + k)]);
          sum += term;
          magnitude += std::fabs(term);
        }
        const double bound = magnitude * static_cast<double>(depth + 2) * 0x1p-24;
        EXPECT_NEAR(out[static_cast<std::size_t>(r * product.columns() + c)], sum, bound)
            << kernel.name << ", depth " << depth;
      }
    }
  }
}

TEST_P(EveryGemmKernel, gives_a_row_the_same_bits_alone_and_in_a_batch) {
  const GemmKernel& kernel = *GetParam();
  GemmCase batch = make_gemm_case(100, 5, 300, spread(engine_, -6, 2));
  const std::vector<float> together = batch.run(kernel);
  for (std::int64_t r = 0; r < batch.num_rows; ++r) {
    GemmCase alone = batch;
    alone.num_rows = 1;
    alone.x.assign(batch.x.begin() + r * batch.depth, batch.x.begin() + (r + 1) * batch.depth);
    const std::vector<float> single = alone.run(kernel);
    ASSERT_TRUE(std::equal(single.begin(), single.end(), together.begin() + r * batch.columns()))
        << kernel.name << ", row " << r;
  }
}

TEST_P(EveryGemmKernel, takes_bf16_rows_at_any_address) {
  for (const std::int64_t depth : kDepths) {
    GemmCase product = make_gemm_case(8, 2, depth, spread(engine_, -6, 2));
    for (float& value : product.x) value = to_float(to_bfloat16(value));
    expect_model(product, product.run(*GetParam(), RowSource::Element::bf16));
  }
}

TEST_P(EveryGemmKernel, agrees_with_its_model_where_results_are_subnormal_or_overflow) {
  for (const auto& [low, high] : {std::pair{-80, -55}, {-135, 5}, {-150, -120}, {40, 70}}) {
    for (const std::int64_t depth : {2, 33, 200}) {
      const GemmCase product = make_gemm_case(9, 3, depth, spread(engine_, low, high));
      expect_model(product, product.run(*GetParam()));
    }
  }
}

TEST_P(EveryGemmKernel, agrees_with_its_model_on_special_values) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0F,         -0.0F,     1.0F,       -1.0F,        0x1p-126F,
                            -0x1p-126F,   0x1p-130F, -0x1p-133F, 0x1p-60F,     0x1.fep127F,
                            -0x1.fep127F, infinity,  -infinity,  std::nanf("")};
  // The last three are left out at first: one NaN hides all else in its sum.
  for (const std::size_t kinds :
       {std::size(specials) - 5, std::size(specials) - 3, std::size(specials)}) {
    std::uniform_int_distribution<std::size_t> kind(0, kinds - 1);
    for (const std::int64_t depth : {1, 2, 5, 40}) {
      const GemmCase product =
          make_gemm_case(13, 3, depth, [&] { return specials[kind(engine_)]; });
      expect_model(product, product.run(*GetParam()));
    }
  }
}

// Just below the smallest normal number: 2^-126 - 2^-150 has 24 bits and is flushed although it
// would round to 2^-126 as a subnormal; 2^-126 - 2^-151 rounds to 2^-126 before that question.
TEST_P(EveryBf16Kernel, flushes_what_is_subnormal_after_rounding) {
  for (const auto& [tiny, expected] : {std::pair{0x1p-75F, 0.0F}, {0x1p-76F, 0x1p-126F}}) {
    GemmCase product = make_gemm_case(1, 1, 4, [] { return 0.0F; });
    const bool odd_first = GetParam()->isa == Isa::avx512_bf16;  // one chain: k = 1, 0, 3, 2
    const std::size_t first = odd_first ? 1 : 0;
    product.x[first] = product.w[first] = 0x1p-63F;
    product.x[2] = tiny;
    product.w[2] = -0x1p-75F;
    EXPECT_EQ(product.run(*GetParam())[0], expected) << tiny;
    expect_model(product, product.run(*GetParam()));
  }
}

TEST_P(EveryGemmKernel, rounds_each_row_value_to_its_format) {
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1 + 0x1p-8F,
                               1 + 0x3p-8F,
                               0x1.01p0F,
                               0x1.fffp-3F,
                               0x1.fffffep127F,
                               0x1p-126F,
                               0x1.fffffcp-127F,
                               0x1p-140F,
                               std::nanf("5"),
                               std::numeric_limits<float>::infinity()};
  values.push_back(std::bit_cast<float>(0x7f800001U));  // a NaN with all its bits in the lower half
  while (values.size() < 400)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(engine_())));
  // Element 5 of a row holds the value, all weights are 1.
  GemmCase product =
      make_gemm_case(static_cast<std::int64_t>(values.size()), 1, 37, [] { return 1.0F; });
  std::fill(product.x.begin(), product.x.end(), 0.0F);
  for (std::size_t r = 0; r < values.size(); ++r) product.x[r * 37 + 5] = values[r];
  const std::vector<float> out = product.run(*GetParam());
  for (std::size_t r = 0; r < values.size(); ++r) {
    float expected = values[r];
    if (GetParam()->format == Format::bf16) {
      expected = to_float(to_bfloat16(expected));
      if (std::fpclassify(expected) == FP_SUBNORMAL) expected = 0;
    }
    EXPECT_EQ(result_bits(out[r * 16]), result_bits(expected + 0.0F))
        << values[r] << ", bits " << std::hex << std::bit_cast<std::uint32_t>(values[r]);
  }
}

TEST_P(EveryBf16Kernel, does_not_depend_on_the_callers_floating_point_settings) {
  const GemmCase product = make_gemm_case(7, 3, 100, spread(engine_, -70, 2));
  const std::vector<float> normal = product.run(*GetParam());
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const std::vector<float> upward = product.run(*GetParam());
  const int rounding = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(rounding, FE_UPWARD);
  volatile float smallest = std::numeric_limits<float>::min();
  EXPECT_GT(smallest / 2, 0.0F) << "the kernel left flushing on";
  // The operands of both runs were rounded to bf16 by integer arithmetic.
  EXPECT_TRUE(std::equal(normal.begin(), normal.end(), upward.begin()));
}

INSTANTIATE_TEST_SUITE_P(, EveryGemmKernel,
                         testing::ValuesIn(kernels_of({Format::f32, Format::bf16})), test_name);
INSTANTIATE_TEST_SUITE_P(, EveryBf16Kernel, testing::ValuesIn(kernels_of({Format::bf16})),
                         test_name);

TEST(KernelTable, has_a_kernel_of_every_format_for_every_instruction_set) {
  for (int format = 0; format < kNumFormats; ++format) {
    const auto wanted = static_cast<Format>(format);
    EXPECT_EQ(find_gemm_kernel(Isa::scalar, wanted).name,
              fmt::format("scalar/{}", format_name(wanted)));
    for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::amx}) {
      if (!is_supported(isa) || (isa == Isa::amx && wanted == Format::f32)) continue;
      EXPECT_EQ(find_gemm_kernel(isa, wanted).name,
                fmt::format("{}/{}", isa_name(isa), format_name(wanted)));
    }
  }
}

}  // namespace
}  // namespace moesaic
