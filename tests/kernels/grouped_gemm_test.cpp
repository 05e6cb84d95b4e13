#include "kernels/grouped_gemm.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/kernels/gemm_case.h"
#include "tests/kernels/gemm_models.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

constexpr std::int64_t kDepth = 70;    // not a whole number of steps
constexpr std::int64_t kColumns = 40;  // not a whole number of panels
constexpr std::int64_t kRows = 300;    // more than one task takes

/// A matrix with the owner of its panels.
struct OwnedMatrix {
  GemmCase values;
  Buffer<std::byte> panels;
  PackedMatrix packed;
};

OwnedMatrix make_matrix(Format format, unsigned seed, std::int64_t depth = kDepth) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  OwnedMatrix matrix{make_gemm_case(0, 3, depth, [&] { return normal(random); }), {}, {}};
  matrix.panels = matrix.values.pack_weights(format);
  matrix.packed = {format, kColumns, depth, matrix.panels.data()};
  return matrix;
}

class GroupedGemmTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::int64_t row = 0; row < kRows; ++row) {
      rows_.push_back(reinterpret_cast<const std::byte*>(x_.data() + row * kDepth));
    }
  }

  [[nodiscard]] RowSource input() const {
    return {.rows = rows_.data(), .num_rows = kRows, .depth = kDepth};
  }
  [[nodiscard]] float product(std::int64_t row, const OwnedMatrix& matrix,
                              std::int64_t column) const {
    const std::size_t depth = kDepth;
    return f32_product(
        std::span(x_).subspan(static_cast<std::size_t>(row) * depth, depth),
        std::span(matrix.values.w).subspan(static_cast<std::size_t>(column) * depth, depth));
  }
  /// [kRows, kColumns], -1 where nothing was written.
  [[nodiscard]] std::vector<float> run(std::span<const GemmGroup> groups, int threads) const {
    ThreadPool pool(threads);
    GroupedGemm gemm(
        {.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
    std::vector<float> out(static_cast<std::size_t>(kRows * kColumns), -1);
    gemm.run(input(), groups,
             {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = kColumns * 4});
    return out;
  }

  std::vector<float> x_ = normal_numbers(kRows * kDepth, 1);
  std::vector<const std::byte*> rows_;
};

TEST_F(GroupedGemmTest, each_group_meets_its_own_matrix_and_bias) {
  const OwnedMatrix first = make_matrix(Format::f32, 10);
  const OwnedMatrix second = make_matrix(Format::f32, 11);
  const std::vector<float> bias = normal_numbers(kColumns, 2);
  const std::vector<GemmGroup> groups = {
      {.first_row = 0, .num_rows = 3, .weights = first.packed},
      {.first_row = 4, .num_rows = 270, .weights = second.packed, .bias = bias.data()},
      {.first_row = 274, .num_rows = 26, .weights = first.packed}};
  for (const int threads : {1, 3}) {
    const std::vector<float> out = run(groups, threads);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const bool has_bias = row >= 4 && row < 274;
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const float expected = row == 3 ? -1
                               : has_bias
                                   ? product(row, second, c) + bias[static_cast<std::size_t>(c)]
                                   : product(row, first, c);
        ASSERT_EQ(out[static_cast<std::size_t>(row * kColumns + c)], expected)
            << "row " << row << " column " << c;
      }
    }
  }
}

TEST_F(GroupedGemmTest, a_gated_group_multiplies_silu_of_the_gate_with_up) {
  const OwnedMatrix gate = make_matrix(Format::f32, 12);
  const OwnedMatrix up = make_matrix(Format::f32, 13);
  const GemmGroup group{.num_rows = kRows, .weights = gate.packed, .up = up.packed};
  const std::vector<float> out = run({&group, 1}, 2);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      const double g = product(row, gate, c);
      const double expected = g / (1 + std::exp(-g)) * product(row, up, c);
      ASSERT_NEAR(out[static_cast<std::size_t>(row * kColumns + c)], expected,
                  1e-5 * (1 + std::abs(expected)));
    }
  }
}

TEST_F(GroupedGemmTest, bf16_results_are_those_in_f32_rounded) {
  const OwnedMatrix weights = make_matrix(Format::bf16, 14);
  const GemmGroup group{.num_rows = kRows, .weights = weights.packed};
  const std::vector<float> wide = run({&group, 1}, 2);
  ThreadPool pool(2);
  GroupedGemm gemm(
      {.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
  std::vector<BFloat16> out(wide.size());
  gemm.run(input(), {&group, 1},
           {.data = reinterpret_cast<std::byte*>(out.data()),
            .stride_bytes = kColumns * 2,
            .element = RowSource::Element::bf16});
  for (std::size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(out[i].bits, to_bfloat16(wide[i]).bits) << i;
  }
}

TEST_F(GroupedGemmTest, refuses_groups_that_do_not_fit) {
  const OwnedMatrix f32 = make_matrix(Format::f32, 15);
  const OwnedMatrix bf16 = make_matrix(Format::bf16, 16);
  const OwnedMatrix deep = make_matrix(Format::f32, 17, kDepth + 1);
  const std::vector<std::vector<GemmGroup>> wrong = {
      {{.num_rows = 1, .weights = deep.packed}},
      {{.num_rows = kRows + 1, .weights = f32.packed}},
      {{.num_rows = 1, .weights = f32.packed, .up = bf16.packed}},
      {{.num_rows = 1, .weights = f32.packed},
       {.first_row = 1, .num_rows = 1, .weights = bf16.packed}}};
  for (const std::vector<GemmGroup>& groups : wrong) EXPECT_THROW(run(groups, 1), Error);
}

}  // namespace
}  // namespace moesaic
