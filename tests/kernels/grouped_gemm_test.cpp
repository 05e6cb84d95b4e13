#include "kernels/grouped_gemm.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/error.h"
#include "kernels/nvfp4_activations.h"
#include "tests/kernels/grouped_gemm_case.h"

namespace moesaic {
namespace {

TEST_F(GroupedGemmTest, each_group_meets_its_own_matrix_and_bias) {
  const TestMatrix first = make_matrix(Format::f32, 10);
  const TestMatrix second = make_matrix(Format::f32, 11);
  const std::vector<float> bias = normal_numbers(kColumns, 2);
  const std::vector<GemmGroup> groups = {
      {.first_row = 0, .num_rows = 3, .weights = first.packed()},
      {.first_row = 4,
       .num_rows = 270,
       .weights = second.packed(),
       .epilogue = {.bias = bias.data()}},
      {.first_row = 274, .num_rows = 26, .weights = first.packed()}};
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

TEST_F(GroupedGemmTest, groups_may_have_different_layouts) {
  const TestMatrix first = make_matrix(Format::nvfp4, 12);
  const TestMatrix second = make_matrix(Format::int8, 13);
  const std::vector<GemmGroup> groups = {
      {.num_rows = 5, .weights = first.packed()},
      {.first_row = 5, .num_rows = 40, .weights = second.packed()}};
  const std::vector<float> out = run(groups, 2);
  for (const GemmGroup& group : groups) {
    RowSource rows = input();
    rows.rows += group.first_row;
    rows.num_rows = group.num_rows;
    const Buffer<float> expected =
        multiply(find_gemm_kernel(Isa::scalar, group.weights.layout.format), rows, group.weights);
    for (std::int64_t row = 0; row < group.num_rows; ++row) {
      for (std::int64_t c = 0; c < kColumns; ++c) {
        ASSERT_EQ(out[static_cast<std::size_t>((group.first_row + row) * kColumns + c)],
                  expected.data()[row * panel_count(kColumns) * kPanelColumns + c]);
      }
    }
  }
}

TEST_F(GroupedGemmTest, mlps_follow_their_formula) {
  const TestMlps mlps(Layout{.format = Format::f32});
  const Gating gating{.limit = 1, .alpha = 1.702F, .offset = 1};
  const std::vector<float> out = run_mlp(mlps.groups, gating, 2);
  for (std::size_t g = 0; g < mlps.groups.size(); ++g) {
    const MlpGroup& group = mlps.groups[g];
    for (std::int64_t row = group.first_row; row < group.first_row + group.num_rows; ++row) {
      std::vector<double> inner;
      for (std::int64_t i = 0; i < TestMlps::kWidth; ++i) {
        const auto bias = [i](const float* values) { return values == nullptr ? 0.0 : values[i]; };
        const double gate =
            std::min<double>(product(row, mlps.gates[g], i) + bias(group.gate_epilogue.bias), 1);
        const double up =
            std::clamp<double>(product(row, mlps.ups[g], i) + bias(group.up_epilogue.bias), -1, 1);
        inner.push_back(gate / (1 + std::exp(-1.702 * gate)) * (up + 1));
      }
      for (std::int64_t c = 0; c < kColumns; ++c) {
        double expected = group.down_epilogue.bias == nullptr ? 0.0 : group.down_epilogue.bias[c];
        for (std::int64_t i = 0; i < TestMlps::kWidth; ++i) {
          expected += inner[static_cast<std::size_t>(i)] *
                      mlps.downs[g].values.w[static_cast<std::size_t>(c * TestMlps::kWidth + i)];
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(row * kColumns + c)], expected,
                    1e-4 * (1 + std::abs(expected)));
      }
    }
  }
}

TEST_F(GroupedGemmTest, mlps_give_the_same_bits_with_any_number_of_threads) {
  for (const Format format : {Format::bf16, Format::mxfp4, Format::int4}) {
    const TestMlps mlps(Layout{.format = format});
    const std::vector<float> one = run_mlp(mlps.groups, {}, 1);
    for (const int threads : {2, 5}) EXPECT_EQ(run_mlp(mlps.groups, {}, threads), one);
  }
}

/// 4.7 MiB of results, which go past the caches where their rows are whole cache lines.
TEST_F(GroupedGemmTest, results_that_no_cache_holds_are_those_of_fewer_rows) {
  constexpr std::int64_t kMany = 4096;
  const TestMatrix weights = make_matrix(Layout{.format = Format::bf16}, 14, kDepth, kMany);
  for (const VectorKernels* const vector : runnable_vector_kernels()) {
    ThreadPool pool(2);
    GroupedGemm gemm({.isa = vector->isa, .vector = vector, .pool = &pool});
    const auto rows_from = [&](std::int64_t first, std::int64_t count, std::int64_t stride) {
      Buffer<float> out;
      out.reserve(count * stride);
      RowSource rows = input();
      rows.rows += first;
      rows.num_rows = count;
      const GemmGroup group{.num_rows = count, .weights = weights.packed()};
      gemm.run(rows, {&group, 1},
               {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = stride * 4});
      return out;
    };
    const Buffer<float> few = rows_from(200, 100, kMany);
    for (const std::int64_t stride : {kMany, kMany + 16, kMany + 1}) {
      const Buffer<float> all = rows_from(0, kRows, stride);
      for (std::int64_t row = 0; row < 100; ++row) {
        const float* const expected = few.data() + row * kMany;
        ASSERT_TRUE(std::equal(expected, expected + kMany, all.data() + (200 + row) * stride))
            << isa_name(vector->isa) << ", row " << 200 + row << ", stride " << stride;
      }
    }
  }
}

TEST_F(GroupedGemmTest, groups_without_rows_write_nothing) {
  TestMlps mlps(Layout{.format = Format::bf16});
  for (MlpGroup& group : mlps.groups) group.num_rows = 0;
  for (const float value : run_mlp(mlps.groups, {}, 2)) ASSERT_EQ(value, -1);
  const TestMatrix weights = make_matrix(Format::bf16, 21);
  const GemmGroup group{.weights = weights.packed()};
  for (const float value : run({&group, 1}, 2)) ASSERT_EQ(value, -1);
}

TEST_F(GroupedGemmTest, rows_are_rounded_to_nvfp4_if_asked) {
  const TestMatrix weights = make_matrix(Format::nvfp4, 19);
  const TestMatrix other = make_matrix(Format::mxfp4, 20);
  ThreadPool pool(2);
  GroupedGemm gemm({.isa = Isa::scalar,
                    .vector = &find_vector_kernels(Isa::scalar),
                    .pool = &pool,
                    .nvfp4_activations = Nvfp4Activations::nvfp4});
  std::vector<float> out(static_cast<std::size_t>(kRows * kColumns));
  const std::vector<GemmGroup> groups = {
      {.num_rows = 200, .weights = weights.packed()},
      {.first_row = 200, .num_rows = kRows - 200, .weights = other.packed()}};
  gemm.run(input(), groups,
           {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = kColumns * 4});
  for (std::size_t row = 0; row < 200; ++row) {  // the other matrix meets its rows as they are
    round_to_nvfp4(std::span(x_).subspan(row * kDepth, kDepth));
  }
  EXPECT_EQ(out, run(groups, 1));
}

TEST_F(GroupedGemmTest, an_order_of_k_is_that_of_the_matrix) {
  const TestMatrix plain = make_matrix(Format::f32, 18);
  std::vector<std::int32_t> order(kDepth);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  std::vector<float> permuted(static_cast<std::size_t>(kColumns * kDepth));
  for (std::size_t i = 0; i < permuted.size(); ++i) {
    permuted[i] = plain.values.w[i / kDepth * kDepth + static_cast<std::size_t>(order[i % kDepth])];
  }
  OwnedMatrix matrix = pack_matrix({.format = Format::f32}, permuted, kColumns, kDepth);
  matrix.matrix.order = order.data();
  const GemmGroup group{.num_rows = kRows, .weights = matrix.matrix};
  const std::vector<float> out = run({&group, 1}, 2);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      ASSERT_NEAR(out[static_cast<std::size_t>(row * kColumns + c)], product(row, plain, c), 1e-4);
    }
  }
}

TEST_F(GroupedGemmTest, bf16_results_are_those_in_f32_rounded) {
  const TestMatrix weights = make_matrix(Format::bf16, 14);
  const GemmGroup group{.num_rows = kRows, .weights = weights.packed()};
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
  const TestMatrix f32 = make_matrix(Format::f32, 15);
  const TestMatrix bf16 = make_matrix(Format::bf16, 16);
  const TestMatrix deep = make_matrix(Format::f32, 17, kDepth + 1);
  const std::vector<std::vector<GemmGroup>> wrong = {
      {{.num_rows = 1, .weights = deep.packed()}},
      {{.num_rows = kRows + 1, .weights = f32.packed()}},
      {{.first_row = -1, .num_rows = 1, .weights = f32.packed()}}};
  for (const std::vector<GemmGroup>& groups : wrong) EXPECT_THROW((void)run(groups, 1), Error);
  MlpGroup mlp{.num_rows = 1, .weights = {f32.packed(), bf16.packed(), f32.packed()}};
  EXPECT_THROW((void)run_mlp({&mlp, 1}, {}, 1), Error);
  mlp.weights.up = f32.packed();
  EXPECT_THROW((void)run_mlp({&mlp, 1}, {}, 1), Error)
      << "down has another depth than gate has rows";
  std::vector<float> few(10 * kColumns);
  const Epilogue short_one{.addend = {few.data(), 10, kColumns}};
  const Epilogue narrow_one{.keep = {few.data(), 10, kColumns - 1}};
  const TestMatrix low = make_matrix(Layout{.format = Format::f32}, 18, 8);
  std::vector<float> inner(kRows * 8);
  const auto projected_by = [&](const TestMatrix& projection) {
    return Epilogue{.low_rank = {.inner = {inner.data(), kRows, 8},
                                 .matrix = low.packed(),
                                 .projection = projection.packed()}};
  };
  const TestMatrix to_low = make_matrix(Layout{.format = Format::f32}, 19, kDepth, 8);
  const TestMatrix to_less = make_matrix(Layout{.format = Format::f32}, 20, kDepth, 7);
  const TestMatrix from_more = make_matrix(Layout{.format = Format::f32}, 21, kDepth + 1, 8);
  const TestMatrix in_bf16 = make_matrix(Layout{.format = Format::bf16}, 22, kDepth, 8);
  const Epilogue of_few{.low_rank = {.inner = {inner.data(), 10, 8}, .matrix = low.packed()}};
  const std::vector<Epilogue> epilogues = {short_one,
                                           narrow_one,
                                           of_few,
                                           projected_by(to_less),
                                           projected_by(from_more),
                                           projected_by(in_bf16)};
  for (const Epilogue& epilogue : epilogues) {
    const GemmGroup group{
        .first_row = 5, .num_rows = 6, .weights = f32.packed(), .epilogue = epilogue};
    EXPECT_THROW((void)run({&group, 1}, 1), Error);
  }
  const GemmGroup fits{
      .num_rows = kRows, .weights = f32.packed(), .epilogue = projected_by(to_low)};
  EXPECT_NO_THROW((void)run({&fits, 1}, 1));
}

}  // namespace
}  // namespace moesaic
