#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/kernel_table.h"
#include "kernels/weight_format.h"
#include "tests/kernels/gemm_case.h"
#include "tests/kernels/gemm_models.h"
#include "tests/kernels/quantized_case.h"

namespace moesaic {
namespace {

constexpr std::int64_t kQuantizedRowCounts[] = {0,  1,  2,  3,  4,  5,  15, 16,
                                                17, 31, 32, 33, 47, 48, 49, 97};
constexpr std::int64_t kQuantizedDepths[] = {1,  2,  15,  16,  17,  31,  33, 63,
                                             64, 65, 127, 128, 129, 257, 600};
constexpr std::int64_t kMostQuantizedRows = 97;
constexpr std::int64_t kPanels = 3;

/// A kernel and a layout of its format.
struct Subject {
  const GemmKernel* kernel;
  Layout layout;
};

/// Whether it can multiply by matrices in this layout.
bool takes_layout(const GemmKernel& kernel, const Layout& layout) {
  return kernel.format == layout.format &&
         (kernel.int4_activations == Int4Activations::bf16 || allows_int8_groups(layout));
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const Layout& layout : quantized_layouts()) {
    for (const GemmKernel* kernel : all_gemm_kernels()) {
      if (takes_layout(*kernel, layout)) all.push_back({kernel, layout});
    }
  }
  return all;
}

std::string subject_name(const testing::TestParamInfo<Subject>& info) {
  const bool int8 = info.param.kernel->int4_activations == Int4Activations::int8;
  return std::string(isa_name(info.param.kernel->isa)) + "_" + layout_name(info.param.layout) +
         (int8 ? "_int8" : "");
}

class QuantizedGemm : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!is_usable(kernel())) GTEST_SKIP() << "this CPU cannot run " << kernel().name;
  }
  [[nodiscard]] static const GemmKernel& kernel() { return *GetParam().kernel; }
  [[nodiscard]] static const Layout& layout() { return GetParam().layout; }
  /// Whether activations become int8.
  [[nodiscard]] static bool rounds_to_int8() {
    return is_integer(layout().format) || kernel().int4_activations == Int4Activations::int8;
  }
  /// The one kernel that sums in another order is compared with its own model.
  [[nodiscard]] static bool has_own_order() { return kernel().isa == Isa::avx512_bf16; }

  [[nodiscard]] GemmCase normal_case(std::int64_t rows, std::int64_t depth) {
    std::normal_distribution<float> normal;
    return make_gemm_case(rows, kPanels, depth, [&] { return normal(engine_); });
  }

  /// Bits of the kernel's result against those of its model.
  void expect_model(const GemmCase& product, const RandomCodes& weights,
                    const std::vector<float>& out) const {
    const std::vector<float> expected =
        has_own_order()
            ? dpbf16_results(product, weights)
            : product.run(find_gemm_kernel(Isa::scalar, layout().format, kernel().int4_activations),
                          weights.matrix());
    ASSERT_EQ(out.size(), expected.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(result_bits(out[i]), result_bits(expected[i]))
          << kernel().name << " " << layout_name(layout()) << " gave " << out[i] << " for "
          << expected[i] << " at row " << i / static_cast<std::size_t>(product.columns()) << " of "
          << product.num_rows << ", column " << i % static_cast<std::size_t>(product.columns())
          << ", depth " << product.depth;
    }
  }

  std::mt19937_64 engine_{7};
};

TEST_P(QuantizedGemm, gives_the_bits_of_its_model_at_every_shape) {
  for (const std::int64_t depth : kQuantizedDepths) {
    const GemmCase product = normal_case(kMostQuantizedRows, depth);
    const RandomCodes weights(layout(), kPanels * kPanelColumns, depth, engine_());
    const std::vector<float> whole = product.run(kernel(), weights.matrix());
    expect_model(product, weights, whole);
    for (const std::int64_t num_rows : kQuantizedRowCounts) {
      const GemmCase::Rows rows = product.rows(num_rows, RowSource::Element::f32);
      for (std::int64_t panels = 0; panels <= kPanels; ++panels) {
        const std::vector<float> out = run_part(kernel(), rows.source, weights.matrix(), panels);
        const std::int64_t columns = panels * kPanelColumns;
        for (std::int64_t i = 0; i < std::ssize(out); ++i) {
          const float expected =
              whole[static_cast<std::size_t>(i / columns * product.columns() + i % columns)];
          ASSERT_EQ(result_bits(out[static_cast<std::size_t>(i)]), result_bits(expected))
              << kernel().name << ", " << num_rows << " rows, " << panels << " panels, depth "
              << depth << ", row " << i / columns << ", column " << i % columns;
        }
      }
    }
  }
}

// So many rows over such a depth are taken in ranges of steps, and a few rows not.
TEST_P(QuantizedGemm, gives_a_row_the_same_bits_among_many_over_a_great_depth) {
  constexpr std::int64_t kGreatDepth = 5600;
  const GemmCase product = normal_case(kMostQuantizedRows, kGreatDepth);
  const RandomCodes weights(layout(), kPanels * kPanelColumns, kGreatDepth, engine_());
  const std::vector<float> whole = product.run(kernel(), weights.matrix());
  const GemmCase::Rows rows = product.rows(17, RowSource::Element::f32);
  const std::vector<float> out = run_part(kernel(), rows.source, weights.matrix(), kPanels);
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(result_bits(out[i]), result_bits(whole[i])) << kernel().name << " at " << i;
  }
}

TEST_P(QuantizedGemm, is_near_the_product_with_the_same_weights_in_double_precision) {
  for (const std::int64_t depth : {64, 129, 600}) {
    const GemmCase product = normal_case(9, depth);
    const OwnedMatrix weights = product.pack_weights(layout());
    const std::vector<float> out = product.run(kernel(), weights.matrix);
    const std::vector<float> values = quantized_values(layout(), product.w, depth);
    double difference = 0;
    double magnitude = 0;
    for (std::int64_t r = 0; r < product.num_rows; ++r) {
      for (std::int64_t c = 0; c < product.columns(); ++c) {
        double sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += static_cast<double>(product.x[static_cast<std::size_t>(r * depth + k)]) *
                 static_cast<double>(values[static_cast<std::size_t>(c * depth + k)]);
        }
        magnitude += std::fabs(sum);
        difference += std::fabs(out[static_cast<std::size_t>(r * product.columns() + c)] - sum);
      }
    }
    EXPECT_LE(difference / magnitude, rounds_to_int8() ? 0.03 : 0.01)
        << kernel().name << ", depth " << depth;
  }
}

TEST_P(QuantizedGemm, gives_a_row_the_same_bits_alone_and_in_a_batch) {
  const GemmCase batch = normal_case(100, 300);
  const RandomCodes weights(layout(), kPanels * kPanelColumns, 300, 3);
  const std::vector<float> together = batch.run(kernel(), weights.matrix());
  for (std::int64_t r = 0; r < batch.num_rows; r += 7) {
    GemmCase alone = batch;
    alone.num_rows = 1;
    alone.x.assign(batch.x.begin() + r * batch.depth, batch.x.begin() + (r + 1) * batch.depth);
    const std::vector<float> single = alone.run(kernel(), weights.matrix());
    ASSERT_TRUE(std::equal(single.begin(), single.end(), together.begin() + r * batch.columns()))
        << kernel().name << ", row " << r;
  }
}

TEST_P(QuantizedGemm, takes_bf16_rows) {
  GemmCase product = normal_case(5, 100);
  for (float& value : product.x) value = to_float(to_bfloat16(value));
  const RandomCodes weights(layout(), kPanels * kPanelColumns, 100, 4);
  EXPECT_EQ(product.run(kernel(), weights.matrix(), RowSource::Element::bf16),
            product.run(kernel(), weights.matrix(), RowSource::Element::f32));
}

TEST_P(QuantizedGemm, agrees_with_its_model_on_special_activations) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0F,      -0.0F,      1.0F,        -1.0F,    0x1p-126F,
                            0x1p-130F, -0x1p-133F, 0x1.fep120F, infinity, std::nanf("")};
  for (const std::size_t kinds : {std::size(specials) - 2, std::size(specials)}) {
    std::uniform_int_distribution<std::size_t> kind(0, kinds - 1);
    for (const std::int64_t depth : {1, 5, 40, 70, 200}) {
      const GemmCase product =
          make_gemm_case(19, kPanels, depth, [&] { return specials[kind(engine_)]; });
      const RandomCodes weights(layout(), kPanels * kPanelColumns, depth, engine_());
      expect_model(product, weights, product.run(kernel(), weights.matrix()));
    }
  }
}

TEST_P(QuantizedGemm, all_zero_weights_give_zeros) {
  const GemmCase product = normal_case(3, 200);
  const std::vector<float> zeros(static_cast<std::size_t>(product.columns() * 200));
  const OwnedMatrix weights = pack_matrix(layout(), zeros, product.columns(), 200);
  for (const float value : product.run(kernel(), weights.matrix)) ASSERT_EQ(value, 0);
}

// What kernels add up in 16 bits has to fit there.
TEST_P(QuantizedGemm, sums_the_largest_integers_exactly) {
  if (!rounds_to_int8()) GTEST_SKIP() << "no integers";
  constexpr std::int64_t kDepth = 600;
  const std::vector<float> ones(static_cast<std::size_t>(kPanels * kPanelColumns * kDepth), 1);
  const OwnedMatrix weights = pack_matrix(layout(), ones, kPanels * kPanelColumns, kDepth);
  const GemmKernel& truth =
      find_gemm_kernel(Isa::scalar, layout().format, kernel().int4_activations);
  for (const float sign : {1.0F, -1.0F}) {
    const GemmCase product = make_gemm_case(5, kPanels, kDepth, [&] { return sign; });
    ASSERT_NEAR(product.run(truth, weights.matrix).front(), sign * kDepth, 0.07 * kDepth);
    ASSERT_EQ(product.run(kernel(), weights.matrix), product.run(truth, weights.matrix));
  }
}

// Some kernels round weights by operations that overflow where the weights themselves do not.
TEST_P(QuantizedGemm, rounds_weights_of_any_size) {
  if (layout().format != Format::int4_group || rounds_to_int8() || has_own_order()) {
    GTEST_SKIP() << "of int4_group in the tile order";
  }
  constexpr std::int64_t kDepth = 700;
  std::normal_distribution<float> normal;
  const GemmCase product =
      make_gemm_case(9, kPanels, kDepth, [&] { return std::ldexp(normal(engine_), -70); });
  std::vector<float> values(static_cast<std::size_t>(product.columns() * kDepth));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto column = static_cast<int>(i / kDepth);
    values[i] =
        std::ldexp(std::clamp(normal(engine_), -3.0F, 3.0F), 80 + column % kPanelColumns * 3);
  }
  const OwnedMatrix weights = pack_matrix(layout(), values, product.columns(), kDepth);
  const GemmKernel& model = find_gemm_kernel(Isa::scalar, layout().format);
  for (const std::int64_t num_rows : {1, 2, 8, 9}) {
    const GemmCase::Rows rows = product.rows(num_rows, RowSource::Element::f32);
    const std::vector<float> out = run_part(kernel(), rows.source, weights.matrix, kPanels);
    const std::vector<float> expected = run_part(model, rows.source, weights.matrix, kPanels);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(std::isfinite(expected[i]));
      ASSERT_EQ(result_bits(out[i]), result_bits(expected[i]))
          << kernel().name << ", " << num_rows << " rows, at " << i;
    }
  }
}

TEST_P(QuantizedGemm, does_not_depend_on_the_callers_floating_point_settings) {
  const GemmCase product = normal_case(7, 100);
  const RandomCodes weights(layout(), kPanels * kPanelColumns, 100, 5);
  const std::vector<float> normal = product.run(kernel(), weights.matrix());
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const std::vector<float> upward = product.run(kernel(), weights.matrix());
  const int rounding = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(rounding, FE_UPWARD);
  EXPECT_EQ(normal, upward);
}

/// Words of bf16 as products take them: subnormal numbers and -0 count as 0. Bytes as they are.
std::vector<std::uint16_t> as_taken(const Layout& layout, const std::byte* from,
                                    std::int64_t bytes) {
  std::vector<std::uint16_t> words(static_cast<std::size_t>(bytes / 2));
  std::memcpy(words.data(), from, words.size() * 2);
  for (std::uint16_t& word : words) {
    if (!is_integer(layout.format) && (word & 0x7f80) == 0) word = 0;
  }
  return words;
}

TEST_P(QuantizedGemm, decodes_what_the_truth_decodes) {
  if (kernel().decode == nullptr) GTEST_SKIP() << "another kernel decodes";
  const std::int64_t depth = 300;
  const RandomCodes weights(layout(), kPanels * kPanelColumns, depth, 6);
  const std::int64_t steps = step_count(layout().format, depth);
  const DecodeSteps truth = find_gemm_kernel(Isa::scalar, layout().format).decode;
  Buffer<std::byte> expected(steps * kTileBytes);
  Buffer<std::byte> found(steps * kTileBytes);
  for (std::int64_t panel = 0; panel < kPanels; ++panel) {
    truth({&weights.matrix(), panel, 0, steps}, expected.data());
    for (std::int64_t first = 0; first < steps; ++first) {  // from any step on
      kernel().decode({&weights.matrix(), panel, first, steps - first}, found.data());
      const std::int64_t bytes = (steps - first) * kTileBytes;
      ASSERT_EQ(as_taken(layout(), found.data(), bytes),
                as_taken(layout(), expected.data() + first * kTileBytes, bytes))
          << kernel().name << ", panel " << panel << " from step " << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, QuantizedGemm, testing::ValuesIn(subjects()), subject_name);

// The scalar kernels are the truth of the others; theirs are the models.
class ScalarGemm : public testing::TestWithParam<Layout> {};

TEST_P(ScalarGemm, sums_the_decoded_weights_in_the_tile_order) {
  if (is_integer(GetParam().format)) GTEST_SKIP() << "sums of integers have no order";
  std::mt19937_64 engine(8);
  std::normal_distribution<float> normal;
  for (const std::int64_t depth : {1, 33, 200}) {
    const GemmCase product = make_gemm_case(3, 2, depth, [&] { return normal(engine); });
    const RandomCodes weights(GetParam(), product.columns(), depth, engine());
    const std::vector<float> out =
        product.run(find_gemm_kernel(Isa::scalar, GetParam().format), weights.matrix());
    for (std::int64_t r = 0; r < product.num_rows; ++r) {
      for (std::int64_t c = 0; c < product.columns(); ++c) {
        const float sum =
            tile_order_product(product.x_bf16(r), decoded_column(weights.matrix(), c));
        ASSERT_EQ(out[static_cast<std::size_t>(r * product.columns() + c)],
                  sum * column_scale(weights.matrix(), c));
      }
    }
  }
}

TEST_P(ScalarGemm, sums_integers_exactly) {
  if (!is_integer(GetParam().format)) GTEST_SKIP() << "not integers";
  // Activations that are their own codes: the largest is 127.
  std::mt19937_64 engine(9);
  std::uniform_int_distribution<int> code(-127, 127);
  const std::int64_t depth = 333;
  GemmCase product = make_gemm_case(3, 2, depth, [&] { return static_cast<float>(code(engine)); });
  for (std::int64_t r = 0; r < 3; ++r) product.x[static_cast<std::size_t>(r * depth)] = 127;
  const RandomCodes weights(GetParam(), product.columns(), depth, 10);
  const std::vector<float> out =
      product.run(find_gemm_kernel(Isa::scalar, GetParam().format), weights.matrix());
  for (std::int64_t r = 0; r < product.num_rows; ++r) {
    for (std::int64_t c = 0; c < product.columns(); ++c) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += static_cast<std::int64_t>(product.x[static_cast<std::size_t>(r * depth + k)]) *
               static_cast<std::int8_t>(weights.rows().row_codes(c)[k]);
      }
      const float expected =
          static_cast<float>(sum) * weights.rows().scales[static_cast<std::size_t>(c)];
      ASSERT_EQ(out[static_cast<std::size_t>(r * product.columns() + c)], expected);
    }
  }
}

TEST_P(ScalarGemm, gives_each_group_of_int8_activations_a_scale) {
  if (!allows_int8_groups(GetParam())) GTEST_SKIP() << "only whole tokens have scales";
  const GemmKernel& kernel =
      find_gemm_kernel(Isa::scalar, GetParam().format, Int4Activations::int8);
  std::mt19937_64 engine(11);
  std::normal_distribution<float> normal;
  for (const int exponent : {0, -95, 100}) {  // groups that count as zeros among others
    std::uniform_int_distribution<int> spread(exponent - 10, exponent);
    for (const std::int64_t depth : {1, 127, 128, 129, 600}) {
      GemmCase product = make_gemm_case(3, 2, depth, [&] { return normal(engine); });
      for (std::size_t first = 0; first < product.x.size(); first += 64) {
        const int power = spread(engine);
        for (std::size_t i = first; i < std::min(first + 64, product.x.size()); ++i) {
          product.x[i] = std::ldexp(product.x[i], power);
        }
      }
      const RandomCodes weights(GetParam(), product.columns(), depth, engine());
      EXPECT_EQ(product.run(kernel, weights.matrix()), int8_group_results(product, weights))
          << "depth " << depth;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ScalarGemm, testing::ValuesIn(quantized_layouts()),
                         [](const auto& layout) { return layout_name(layout.param); });

}  // namespace
}  // namespace moesaic
