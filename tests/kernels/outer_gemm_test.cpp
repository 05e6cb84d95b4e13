#include "kernels/outer_gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/buffer.h"
#include "base/error.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

/// Rows of y and x, in memory that is aligned to nothing but their elements.
struct Inputs {
  Inputs(RowSource::Element kind, std::int64_t num_rows, std::int64_t n, std::int64_t k)
      : element(kind),
        rows(num_rows),
        y(normal_numbers(num_rows * n, 1)),
        x(normal_numbers(num_rows * k, 2)),
        y_narrow(narrow(y)),
        x_narrow(narrow(x)),
        y_rows(pointers(y, y_narrow, n)),
        x_rows(pointers(x, x_narrow, k)),
        columns(n),
        depth(k) {}

  [[nodiscard]] OuterInput input(Format format) const {
    return {.y = {.rows = y_rows.data(), .num_rows = rows, .depth = columns, .element = element},
            .x = {.rows = x_rows.data(), .num_rows = rows, .depth = depth, .element = element},
            .format = format};
  }

  static std::vector<BFloat16> narrow(const std::vector<float>& values) {
    std::vector<BFloat16> words(values.size() + 1);
    std::ranges::transform(values, words.begin() + 1, to_bfloat16);
    return words;
  }
  [[nodiscard]] std::vector<const std::byte*> pointers(const std::vector<float>& wide,
                                                       const std::vector<BFloat16>& words,
                                                       std::int64_t width) const {
    std::vector<const std::byte*> starts;
    for (std::int64_t row = 0; row < rows; ++row) {
      starts.push_back(element == RowSource::Element::f32
                           ? reinterpret_cast<const std::byte*>(wide.data() + row * width)
                           : reinterpret_cast<const std::byte*>(words.data() + 1 + row * width));
    }
    return starts;
  }

  RowSource::Element element;
  std::int64_t rows;
  std::vector<float> y;
  std::vector<float> x;
  std::vector<BFloat16> y_narrow;
  std::vector<BFloat16> x_narrow;
  std::vector<const std::byte*> y_rows;
  std::vector<const std::byte*> x_rows;
  std::int64_t columns;
  std::int64_t depth;
};

/// Results of groups, one behind the other, with some floats between their rows.
struct Results {
  Results(std::int64_t groups, std::int64_t n, std::int64_t k, std::int64_t gap = 0)
      : rows(n), columns(k), stride(k + gap), values(groups * n * stride) {
    std::fill_n(values.data(), values.size(), kBefore);
  }

  [[nodiscard]] MatrixView<float> at(std::int64_t group) const {
    return {values.data() + group * rows * stride, rows, columns, stride};
  }
  [[nodiscard]] std::vector<float> copy() const {
    return {values.data(), values.data() + values.size()};
  }

  static constexpr float kBefore = 0.5F;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
  Buffer<float> values;
};

/// Rows 3 to 3 + 40, none, and those behind, on an instruction set.
std::vector<float> run_groups(const Inputs& inputs, Format format, Isa isa, int threads,
                              bool accumulate = false, std::int64_t gap = 0) {
  ThreadPool pool(threads);
  OuterGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
  const Results results(3, inputs.columns, inputs.depth, gap);
  const OuterGroup groups[] = {
      {.first_row = 3, .num_rows = 40, .result = results.at(0), .accumulate = accumulate},
      {.first_row = 43, .num_rows = 0, .result = results.at(1), .accumulate = accumulate},
      {.first_row = 43,
       .num_rows = inputs.rows - 43,
       .result = results.at(2),
       .accumulate = accumulate}};
  gemm.run(inputs.input(format), groups);
  return results.copy();
}

/// The sum over rows [first, first + count) of products that become bf16 or stay f32, in the order
/// that docs/numerics.md gives for the tile order and f32.
float model(const Inputs& inputs, Format format, std::int64_t first, std::int64_t count,
            std::int64_t n, std::int64_t k, float begin) {
  const auto value = [&](const std::vector<float>& values, std::int64_t width, std::int64_t row,
                         std::int64_t column) {
    if (row >= count) return 0.0F;
    const float wide = values[static_cast<std::size_t>((first + row) * width + column)];
    const bool rounded = format == Format::bf16 || inputs.element == RowSource::Element::bf16;
    return rounded ? to_float(to_bfloat16(wide)) : wide;
  };
  float sum = begin;
  const auto product = [&](std::int64_t row, float to) {
    return std::fma(value(inputs.y, inputs.columns, row, n), value(inputs.x, inputs.depth, row, k),
                    to);
  };
  if (format == Format::f32) {
    for (std::int64_t row = 0; row < count; ++row) sum = product(row, sum);
    return sum;
  }
  for (std::int64_t step = 0; step < count; step += 32) {
    float even = 0;
    float odd = 0;
    for (std::int64_t row = step; row < step + 32; row += 2) {
      even = product(row, even);
      odd = product(row + 1, odd);
    }
    sum += even + odd;
  }
  return sum;
}

struct Shape {
  std::int64_t rows;
  std::int64_t n;
  std::int64_t k;
};

class OuterGemmTest : public testing::TestWithParam<Format> {};

TEST_P(OuterGemmTest, follows_its_order_of_summation) {
  for (const auto element : {RowSource::Element::f32, RowSource::Element::bf16}) {
    for (const auto& [rows, n, k] : {Shape{75, 20, 70}, {75, 70, 20}, {1200, 8, 40}, {60, 70, 5}}) {
      const Inputs inputs(element, rows, n, k);
      for (const bool accumulate : {false, true}) {
        const float begin = accumulate ? Results::kBefore : 0.0F;
        const std::vector<float> out = run_groups(inputs, GetParam(), Isa::scalar, 2, accumulate);
        for (std::int64_t i = 0; i < n; ++i) {
          for (std::int64_t j = 0; j < k; ++j) {
            const auto at = static_cast<std::size_t>(i * k + j);
            const auto group = static_cast<std::size_t>(n * k);
            ASSERT_EQ(out[at], model(inputs, GetParam(), 3, 40, i, j, begin)) << i << ", " << j;
            ASSERT_EQ(out[group + at], begin) << "a group without rows";
            ASSERT_EQ(out[2 * group + at], model(inputs, GetParam(), 43, rows - 43, i, j, begin));
          }
        }
      }
    }
  }
}

// Shapes of LoRA (few columns on one side), of whole matrices, with results that kernels can write
// where they are and with ones that they cannot.
TEST_P(OuterGemmTest, gives_the_same_bits_on_every_instruction_set_of_the_tile_order) {
  for (const auto element : {RowSource::Element::f32, RowSource::Element::bf16}) {
    for (const auto& [rows, n, k] : {Shape{2100, 8, 96},
                                     {75, 300, 64},
                                     {100, 160, 16},
                                     {64, 33, 290},
                                     {60, 70, 5},
                                     {44, 1, 1}}) {
      const Inputs inputs(element, rows, n, k);
      for (const std::int64_t gap : {0, 5}) {
        const std::vector<float> scalar = run_groups(inputs, GetParam(), Isa::scalar, 1, true, gap);
        for (const Isa isa : supported_isas()) {
          const bool own_order = isa == Isa::avx512_bf16 && GetParam() == Format::bf16;
          const std::vector<float> one = run_groups(inputs, GetParam(), isa, 1, true, gap);
          EXPECT_TRUE(own_order || first_difference(one, scalar) == -1) << isa_name(isa);
          EXPECT_EQ(first_difference(run_groups(inputs, GetParam(), isa, 3, true, gap), one), -1);
        }
      }
    }
  }
}

// Few columns and rows are multiplied in another way.
TEST_P(OuterGemmTest, gives_a_column_the_same_bits_alone_and_among_others) {
  const Inputs inputs(RowSource::Element::f32, 30, 50, 70);
  const auto run = [&](Isa isa, std::int64_t columns, const Results& results) {
    ThreadPool pool(2);
    OuterGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
    OuterInput input = inputs.input(GetParam());
    input.y.depth = columns;
    const OuterGroup group{.num_rows = 27, .result = results.at(0)};
    gemm.run(input, {&group, 1});
  };
  for (const Isa isa : supported_isas()) {
    const Results few(1, 9, 70);
    const Results many(1, 50, 70);
    run(isa, 9, few);
    run(isa, 50, many);
    const std::vector<float> all = many.copy();
    EXPECT_EQ(first_difference(few.copy(), std::span(all).first(9 * 70)), -1) << isa_name(isa);
  }
}

TEST_P(OuterGemmTest, is_near_the_product_in_double_precision) {
  const Inputs inputs(RowSource::Element::bf16, 1100, 40, 64);
  for (const Isa isa : supported_isas()) {
    const std::vector<float> out = run_groups(inputs, GetParam(), isa, 2);
    for (std::int64_t i = 0; i < 40 * 64; ++i) {
      double sum = 0;
      double size = 0;
      for (std::int64_t row = 43; row < 1100; ++row) {
        const double y = to_float(inputs.y_narrow[static_cast<std::size_t>(1 + row * 40 + i / 64)]);
        const double x = to_float(inputs.x_narrow[static_cast<std::size_t>(1 + row * 64 + i % 64)]);
        sum += y * x;
        size += std::fabs(y * x);
      }
      ASSERT_NEAR(out[static_cast<std::size_t>(2 * 40 * 64 + i)], sum, 1e-5 * size)
          << isa_name(isa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, OuterGemmTest, testing::Values(Format::f32, Format::bf16),
                         [](const auto& format) { return std::string(format_name(format.param)); });

TEST(OuterGemm, memory_is_that_of_some_rows) {
  const Inputs inputs(RowSource::Element::bf16, 1, 256, 256);
  const std::vector<const std::byte*> y(40000, inputs.y_rows.front());
  const std::vector<const std::byte*> x(40000, inputs.x_rows.front());
  OuterInput input = inputs.input(Format::bf16);
  input.y.rows = y.data();
  input.x.rows = x.data();
  input.y.num_rows = input.x.num_rows = 40000;
  const Results results(1, 256, 256);
  const OuterGroup group{.num_rows = 40000, .result = results.at(0)};
  ThreadPool pool(2);
  const Isa isa = supported_isas().back();
  const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool};
  OuterGemm gemm(compute);
  gemm.run(input, {&group, 1});
  // A quarter of both inputs packed at once: rows as the kernel takes them, panels in bf16.
  const auto row_bytes =
      static_cast<std::int64_t>(compute.gemm(Format::bf16).packed_row_bytes(40000));
  EXPECT_LE(gemm.scratch_bytes(), 256 * (row_bytes + 40000 * 2) / 4);
  const float one = to_float(inputs.y_narrow[1]) * to_float(inputs.x_narrow[1]);
  EXPECT_NEAR(results.at(0)(0, 0), one * 40000, std::fabs(one) * 4);
}

/// What is kept for groups of so many rows each.
std::int64_t kept_for_groups(const OuterGemm::Size& size, std::int64_t groups, int threads) {
  const Inputs inputs(RowSource::Element::bf16, 1, size.y_columns, size.x_columns);
  const std::vector<const std::byte*> y(static_cast<std::size_t>(size.rows), inputs.y_rows.front());
  const std::vector<const std::byte*> x(static_cast<std::size_t>(size.rows), inputs.x_rows.front());
  OuterInput input = inputs.input(Format::bf16);
  input.y.rows = y.data();
  input.x.rows = x.data();
  input.y.num_rows = input.x.num_rows = size.rows;
  const Results results(groups, size.y_columns, size.x_columns);
  std::vector<OuterGroup> all;
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t rows = size.rows / groups;
    all.push_back({.first_row = i * rows, .num_rows = rows, .result = results.at(i)});
  }
  ThreadPool pool(threads);
  const Isa isa = supported_isas().back();
  OuterGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
  gemm.run(input, all);
  return gemm.scratch_bytes();
}

TEST(OuterGemm, packs_no_more_than_it_tells_for_any_number_of_threads) {
  const GemmKernel& kernel = find_gemm_kernel(supported_isas().back(), Format::bf16);
  std::int64_t one = 0;  // thread, at most
  for (const int threads : {1, 2, 64}) {
    for (const auto& [y_columns, x_columns] : {std::pair(16, 400), {300, 34}, {260, 280}}) {
      for (const auto& [rows, groups] : {std::pair(30000, 1), {2500, 1}, {4200, 6}, {1600, 100}}) {
        const OuterGemm::Size size{rows, y_columns, x_columns};
        const std::int64_t kept = kept_for_groups(size, groups, threads);
        const std::int64_t told = OuterGemm::packed_bytes(kernel, size, threads);
        EXPECT_LE(kept, told * 5 / 4) << threads << " threads, " << y_columns << " x " << x_columns
                                      << ", " << groups << " groups of " << rows << " rows";
        EXPECT_TRUE(rows < 30000 || told <= 2 * kept) << told << " are told of, not " << kept;
        if (threads == 1) one = std::max(one, kept);
        EXPECT_TRUE(threads < 64 || rows < 30000 || kept > one) << kept;
      }
    }
  }
}

TEST(OuterGemm, refuses_groups_that_do_not_fit) {
  const Inputs inputs(RowSource::Element::f32, 50, 16, 32);
  const Results results(1, 16, 32);
  ThreadPool pool(1);
  OuterGemm gemm({.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
  const auto run = [&](const OuterGroup& group, Format format = Format::f32) {
    gemm.run(inputs.input(format), {&group, 1});
  };
  EXPECT_THROW(run({.num_rows = 51, .result = results.at(0)}), Error);
  EXPECT_THROW(run({.first_row = -1, .num_rows = 3, .result = results.at(0)}), Error);
  EXPECT_THROW(run({.num_rows = 50, .result = {results.values.data(), 15, 32}}), Error);
  EXPECT_THROW(run({.num_rows = 50, .result = {results.values.data(), 16, 31}}), Error);
  EXPECT_THROW(run({.num_rows = 50, .result = results.at(0)}, Format::int8), Error);
  EXPECT_NO_THROW(run({.num_rows = 50, .result = results.at(0)}));
}

}  // namespace
}  // namespace moesaic
