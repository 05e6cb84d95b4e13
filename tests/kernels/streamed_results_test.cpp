// Results that go past the caches: by kernels while they multiply, or by whoever calls them.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/streamed_results.h"
#include "kernels/transposed_gemm.h"
#include "tests/kernels/quantized_case.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

/// Of a product whose results are streamed to rows that have room for 16 more elements.
void expect_streamed(const GemmKernel& kernel, const Layout& layout, const GemmCase& product) {
  const std::int64_t columns = product.columns();
  const std::int64_t stride = columns + kPanelColumns;
  constexpr float kUntouched = 12345;
  Buffer<float> streamed(product.num_rows * stride);
  std::fill_n(streamed.data(), product.num_rows * stride, kUntouched);
  const OwnedMatrix weights = product.pack_weights(layout);
  const GemmCase::Rows rows = product.rows(product.num_rows, RowSource::Element::f32);
  const std::vector<float> results =
      run_part(kernel, rows.source, weights.matrix, product.num_panels, {streamed.data(), stride});
  for (std::int64_t i = 0; i < product.num_rows * stride; ++i) {
    const std::int64_t column = i % stride;
    const float expected = column < columns
                               ? results[static_cast<std::size_t>(i / stride * columns + column)]
                               : kUntouched;
    ASSERT_EQ(result_bits(streamed.data()[i]), result_bits(expected))
        << kernel.name << ", " << product.num_rows << " rows, element " << i;
  }
}

TEST(StreamedResults, of_kernels_are_their_results) {
  int kernels = 0;
  const std::vector<float> values = normal_numbers(1 << 16, 3);
  std::size_t next = 0;
  const auto draw = [&] { return values[next++ % values.size()]; };
  std::vector<Layout> layouts = quantized_layouts();
  layouts.push_back({.format = Format::bf16});
  for (const GemmKernel* kernel : all_gemm_kernels()) {
    if (!kernel->streams_results || !is_usable(*kernel)) continue;
    const auto layout = std::ranges::find(layouts, kernel->format, &Layout::format);
    ASSERT_NE(layout, layouts.end()) << kernel->name;
    ++kernels;
    for (const std::int64_t rows : {17, 40, 48, 64, 100}) {
      for (const std::int64_t panels : {1, 2, 5}) {
        expect_streamed(*kernel, *layout, make_gemm_case(rows, panels, 70, draw));
      }
    }
    // Few steps for many rows; more steps than are multiplied at a time.
    expect_streamed(*kernel, *layout, make_gemm_case(256, 3, 32, draw));
    expect_streamed(*kernel, *layout, make_gemm_case(130, 4, 4160, draw));
  }
  if (kernels == 0) GTEST_SKIP() << "no kernel of this CPU streams results";
}

/// Products so large that their results are streamed have the bits of those of half the rows, which
/// are not. With or without an adapter.
class LargeProductTest : public testing::TestWithParam<std::tuple<Format, bool>> {
 protected:
  static constexpr std::int64_t kDepth = 64;
  static constexpr std::int64_t kColumns = 2048;
  static constexpr std::int64_t kRows = 700;
  static constexpr std::int64_t kRank = 8;
  static_assert(kRows * kColumns * 4 >= kCachedBytes);
  static_assert(kRows / 2 * kColumns * 4 < kCachedBytes);

  LargeProductTest() {
    for (std::int64_t row = 0; row < kRows; ++row) {
      rows_.push_back(reinterpret_cast<const std::byte*>(x_.data() + row * kDepth));
    }
  }

  static OwnedMatrix matrix(Format format, std::int64_t rows, std::int64_t depth, unsigned seed) {
    return pack_matrix({.format = format}, normal_numbers(rows * depth, seed, 0.3F), rows, depth);
  }
  static OwnedMatrix matrix(std::int64_t rows, std::int64_t depth, unsigned seed) {
    return matrix(std::get<Format>(GetParam()), rows, depth, seed);
  }
  [[nodiscard]] RowSource input(std::int64_t first, std::int64_t count) const {
    return {.rows = rows_.data() + first, .num_rows = count, .depth = kDepth};
  }
  static GemmOutput output(float* out, std::int64_t columns) {
    return {.data = reinterpret_cast<std::byte*>(out), .stride_bytes = columns * 4};
  }
  /// What an adapter adds to rows from `first` on, or nothing.
  [[nodiscard]] LowRank low_rank(std::int64_t first, std::int64_t count,
                                 const OwnedMatrix& factor) {
    if (!std::get<bool>(GetParam())) return {};
    return {.inner = {low_.data() + first * kRank, count, kRank}, .matrix = factor.matrix};
  }
  /// Many, some and few of an input's rows.
  [[nodiscard]] static std::vector<GemmGroup> groups(std::int64_t rows, const OwnedMatrix& weights,
                                                     const LowRank& low_rank) {
    std::vector<GemmGroup> groups;
    std::int64_t first = 0;
    for (const std::int64_t count : {rows - 60, std::int64_t{50}, std::int64_t{10}}) {
      groups.push_back({.first_row = first,
                        .num_rows = count,
                        .weights = weights.matrix,
                        .epilogue = {.low_rank = low_rank}});
      first += count;
    }
    return groups;
  }

  /// run(gemm's Compute, first row, rows, out [rows, kColumns]) on each instruction set.
  template <typename Run>
  static void expect_same_bits(const Run& run) {
    ThreadPool pool(2);
    for (const Isa isa : supported_isas()) {
      const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool};
      Buffer<float> whole(kRows * kColumns);
      Buffer<float> halves(kRows * kColumns);
      run(compute, 0, kRows, whole.data());
      run(compute, 0, kRows / 2, halves.data());
      run(compute, kRows / 2, kRows / 2, halves.data() + kRows / 2 * kColumns);
      const auto count = static_cast<std::size_t>(kRows * kColumns);
      EXPECT_EQ(first_difference({whole.data(), count}, {halves.data(), count}), -1)
          << isa_name(isa);
    }
  }

 private:
  std::vector<float> x_ = normal_numbers(kRows * kDepth, 1);
  std::vector<const std::byte*> rows_;
  std::vector<float> low_ = normal_numbers(kRows * kRank, 2);
};

TEST_P(LargeProductTest, rows_by_a_matrix) {
  const OwnedMatrix weights = matrix(kColumns, kDepth, 3);
  const OwnedMatrix factor = matrix(Format::bf16, kColumns, kRank, 4);
  expect_same_bits([&](const Compute& compute, std::int64_t first, std::int64_t count, float* out) {
    GroupedGemm(compute).run(input(first, count),
                             groups(count, weights, low_rank(first, count, factor)),
                             output(out, kColumns));
  });
}

TEST_P(LargeProductTest, rows_by_the_sum_of_transposed_matrices) {
  const OwnedMatrix weights = matrix(kDepth, kColumns, 3);
  const OwnedMatrix factor = matrix(Format::bf16, kRank, kColumns, 4);
  expect_same_bits([&](const Compute& compute, std::int64_t first, std::int64_t count, float* out) {
    const RowSource rows = input(first, count);
    const auto of_each = groups(count, weights, low_rank(first, count, factor));
    const TransposedProduct products[] = {{rows, of_each}, {rows, of_each}};
    TransposedGemm(compute).run(products, output(out, kColumns));
  });
}

// Sums of gate and up are still to be gated when they are kept.
TEST_P(LargeProductTest, gate_and_up_that_are_kept) {
  const OwnedMatrix gate = matrix(kColumns, kDepth, 3);
  const OwnedMatrix up = matrix(kColumns, kDepth, 5);
  const OwnedMatrix down = matrix(kDepth, kColumns, 6);
  const OwnedMatrix factor = matrix(Format::bf16, kColumns, kRank, 4);
  Buffer<float> results(kRows * kDepth);
  for (const bool is_up : {false, true}) {
    expect_same_bits(
        [&](const Compute& compute, std::int64_t first, std::int64_t count, float* out) {
          Buffer<float> other(count * kColumns);
          const LowRank adapter = low_rank(first, count, factor);
          MlpGroup group{.num_rows = count, .weights = {gate.matrix, up.matrix, down.matrix}};
          group.gate_epilogue = {.low_rank = adapter,
                                 .keep = {is_up ? other.data() : out, count, kColumns}};
          group.up_epilogue = {.low_rank = adapter,
                               .keep = {is_up ? out : other.data(), count, kColumns}};
          GroupedGemm(compute).run_mlp(input(first, count), {&group, 1}, {},
                                       output(results.data(), kDepth));
        });
  }
}

// What is gated is what would be gated if nothing was kept.
TEST_P(LargeProductTest, keeping_changes_no_result) {
  const OwnedMatrix gate = matrix(kColumns, kDepth, 3);
  const OwnedMatrix up = matrix(kColumns, kDepth, 5);
  const OwnedMatrix down = matrix(kDepth, kColumns, 6);
  const OwnedMatrix factor = matrix(Format::bf16, kColumns, kRank, 4);
  const LowRank adapter = low_rank(0, kRows, factor);
  Buffer<float> kept(kRows * kColumns);
  ThreadPool pool(1);
  for (const Isa isa : supported_isas()) {
    GroupedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
    std::vector<float> results[2];
    for (const bool keeps : {false, true}) {
      MlpGroup group{.num_rows = kRows, .weights = {gate.matrix, up.matrix, down.matrix}};
      group.gate_epilogue.low_rank = group.up_epilogue.low_rank = adapter;
      if (keeps) {
        group.gate_epilogue.keep = {kept.data(), kRows, kColumns};
        group.up_epilogue.keep = {kept.data(), kRows, kColumns};
      }
      std::vector<float>& out = results[keeps ? 1 : 0];
      out.resize(kRows * kDepth);
      gemm.run_mlp(input(0, kRows), {&group, 1}, {}, output(out.data(), kDepth));
    }
    EXPECT_EQ(first_difference(results[0], results[1]), -1) << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LargeProductTest,
                         testing::Combine(testing::Values(Format::bf16, Format::int8,
                                                          Format::fp8_channel),
                                          testing::Bool()),
                         [](const auto& param) {
                           return std::string(format_name(std::get<0>(param.param))) +
                                  (std::get<1>(param.param) ? "_with_adapter" : "");
                         });

}  // namespace
}  // namespace moesaic
