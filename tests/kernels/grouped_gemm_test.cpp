#include "kernels/grouped_gemm.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/error.h"
#include "kernels/nvfp4_activations.h"
#include "tests/kernels/gemm_case.h"
#include "tests/kernels/gemm_models.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

constexpr std::int64_t kDepth = 70;    // not a whole number of steps
constexpr std::int64_t kColumns = 40;  // not a whole number of panels
constexpr std::int64_t kRows = 300;    // more than one task takes

/// A matrix as plain numbers and packed.
struct TestMatrix {
  GemmCase values;
  OwnedMatrix owned;

  [[nodiscard]] const PackedMatrix& packed() const { return owned.matrix; }
};

TestMatrix make_matrix(const Layout& layout, unsigned seed, std::int64_t depth = kDepth,
                       std::int64_t columns = kColumns) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2F);
  TestMatrix matrix{make_gemm_case(0, panel_count(columns), depth, [&] { return normal(random); }),
                    {}};
  matrix.owned = pack_matrix(
      layout, std::span(matrix.values.w).first(static_cast<std::size_t>(columns * depth)), columns,
      depth);
  return matrix;
}
TestMatrix make_matrix(Format format, unsigned seed, std::int64_t depth = kDepth) {
  return make_matrix(Layout{.format = format}, seed, depth);
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
  [[nodiscard]] float product(std::int64_t row, const TestMatrix& matrix,
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

  [[nodiscard]] std::vector<float> run_mlp(std::span<const MlpGroup> groups, const Gating& gating,
                                           int threads) const {
    ThreadPool pool(threads);
    GroupedGemm gemm(
        {.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
    std::vector<float> out(static_cast<std::size_t>(kRows * kColumns), -1);
    gemm.run_mlp(input(), groups, gating,
                 {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = kColumns * 4});
    return out;
  }

  std::vector<float> x_ = normal_numbers(kRows * kDepth, 1);
  std::vector<const std::byte*> rows_;
};

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

/// The MLPs of four groups, one of them empty, with every sort of bias.
struct TestMlps {
  explicit TestMlps(const Layout& layout) {
    for (unsigned g = 0; g < 4; ++g) {
      gates.push_back(make_matrix(layout, 100 + g, kDepth, kWidth));
      ups.push_back(make_matrix(layout, 200 + g, kDepth, kWidth));
      downs.push_back(make_matrix(layout, 300 + g, kWidth, kColumns));
      gate_biases.push_back(normal_numbers(kWidth, 400 + g));
      up_biases.push_back(normal_numbers(kWidth, 500 + g));
      down_biases.push_back(normal_numbers(kColumns, 600 + g));
    }
    const std::int64_t rows[] = {3, 270, 0, 27};
    std::int64_t first = 0;
    for (std::size_t g = 0; g < 4; ++g) {
      const bool biased = g % 2 == 1;
      groups.push_back({.first_row = first,
                        .num_rows = rows[g],
                        .weights = {gates[g].packed(), ups[g].packed(), downs[g].packed()},
                        .gate_epilogue = {.bias = biased ? gate_biases[g].data() : nullptr},
                        .up_epilogue = {.bias = biased ? up_biases[g].data() : nullptr},
                        .down_epilogue = {.bias = biased ? down_biases[g].data() : nullptr}});
      first += rows[g];
    }
  }

  static constexpr std::int64_t kWidth = 50;
  std::vector<TestMatrix> gates, ups, downs;
  std::vector<std::vector<float>> gate_biases, up_biases, down_biases;
  std::vector<MlpGroup> groups;
};

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

/// Rows of floats as a product's input.
std::vector<const std::byte*> row_pointers(const std::vector<float>& values, std::int64_t width) {
  std::vector<const std::byte*> rows;
  for (std::int64_t row = 0; row < std::ssize(values) / width; ++row) {
    rows.push_back(reinterpret_cast<const std::byte*>(values.data() + row * width));
  }
  return rows;
}

// W x + s B (A x), as an adapter of each group adds it: A x is a product of its own, B's results
// are the addend.
TEST_F(GroupedGemmTest, an_addend_is_added_behind_the_bias) {
  constexpr std::int64_t kRank = 8;
  const TestMatrix w = make_matrix(Layout{.format = Format::int4}, 40);
  const TestMatrix a = make_matrix(Layout{.format = Format::bf16}, 41, kDepth, kRank);
  const TestMatrix b = make_matrix(Layout{.format = Format::bf16}, 42, kRank, kColumns);
  const std::vector<float> bias = normal_numbers(kColumns, 43);
  ThreadPool pool(3);
  const Isa isa = supported_isas().back();
  GroupedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
  const auto run_in = [&](std::span<const std::byte* const> rows, std::int64_t depth,
                          std::vector<GemmGroup> groups) {
    const std::int64_t columns = groups.front().weights.rows;
    std::vector<float> out(static_cast<std::size_t>(kRows * columns), -1);
    gemm.run({.rows = rows.data(), .num_rows = kRows, .depth = depth}, groups,
             {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = columns * 4});
    return out;
  };
  const std::vector<float> low =
      run_in(rows_, kDepth, {{.num_rows = kRows, .weights = a.packed()}});
  std::vector<float> addend =
      run_in(row_pointers(low, kRank), kRank, {{.num_rows = kRows, .weights = b.packed()}});
  for (float& value : addend) value *= 2;
  const std::vector<float> plain =
      run_in(rows_, kDepth,
             {{.num_rows = kRows, .weights = w.packed(), .epilogue = {.bias = bias.data()}}});
  std::vector<float> kept(addend.size(), -1);
  const Epilogue epilogue{.bias = bias.data(),
                          .addend = {addend.data(), kRows, kColumns},
                          .keep = {kept.data(), kRows, kColumns}};
  const std::vector<float> adapted = run_in(
      rows_, kDepth,
      {{.num_rows = 3, .weights = w.packed(), .epilogue = epilogue},
       {.first_row = 3, .num_rows = kRows - 3, .weights = w.packed(), .epilogue = epilogue}});
  for (std::size_t i = 0; i < adapted.size(); ++i) ASSERT_EQ(adapted[i], plain[i] + addend[i]) << i;
  EXPECT_EQ(kept, adapted);
}

// What a backward pass needs of an MLP: gate and up as products of their own give them.
TEST_F(GroupedGemmTest, gate_and_up_can_be_kept) {
  const TestMlps mlps(Layout{.format = Format::bf16});
  const std::vector<float> expected = run_mlp(mlps.groups, {.limit = 2}, 2);
  std::vector<float> gate(static_cast<std::size_t>(kRows * TestMlps::kWidth), -1);
  std::vector<float> up = gate;
  std::vector<MlpGroup> groups = mlps.groups;
  for (MlpGroup& group : groups) {
    group.gate_epilogue.keep = {gate.data(), kRows, TestMlps::kWidth};
    group.up_epilogue.keep = {up.data(), kRows, TestMlps::kWidth};
  }
  EXPECT_EQ(run_mlp(groups, {.limit = 2}, 2), expected) << "keeping changes nothing";
  ThreadPool pool(1);
  GroupedGemm gemm(
      {.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
  for (const bool is_up : {false, true}) {
    std::vector<GemmGroup> products;
    for (const MlpGroup& group : mlps.groups) {
      products.push_back({.first_row = group.first_row,
                          .num_rows = group.num_rows,
                          .weights = is_up ? group.weights.up : group.weights.gate,
                          .epilogue = is_up ? group.up_epilogue : group.gate_epilogue});
    }
    std::vector<float> out(gate.size(), -1);
    gemm.run(
        input(), products,
        {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = TestMlps::kWidth * 4});
    EXPECT_EQ(out, is_up ? up : gate);
  }
}

// Each of an MLP's three products adds what its adapter gives, down from kept gate and up.
TEST_F(GroupedGemmTest, an_mlp_adds_to_each_of_its_products) {
  const TestMlps mlps(Layout{.format = Format::f32});
  const std::int64_t width = TestMlps::kWidth;
  const std::vector<float> more_gate = normal_numbers(kRows * width, 50);
  const std::vector<float> more_up = normal_numbers(kRows * width, 51);
  const std::vector<float> more_down = normal_numbers(kRows * kColumns, 52);
  std::vector<float> gate(more_gate.size());
  std::vector<float> up(more_up.size());
  std::vector<MlpGroup> groups = mlps.groups;
  std::vector<GemmGroup> downs;
  for (MlpGroup& group : groups) {
    group.gate_epilogue.addend = {more_gate.data(), kRows, width};
    group.up_epilogue.addend = {more_up.data(), kRows, width};
    group.down_epilogue.addend = {more_down.data(), kRows, kColumns};
    group.gate_epilogue.keep = {gate.data(), kRows, width};
    group.up_epilogue.keep = {up.data(), kRows, width};
    downs.push_back({.first_row = group.first_row,
                     .num_rows = group.num_rows,
                     .weights = group.weights.down,
                     .epilogue = {.bias = group.down_epilogue.bias}});
  }
  const std::vector<float> out = run_mlp(groups, {}, 3);
  find_vector_kernels(Isa::scalar).gate({}, up.data(), std::ssize(up), gate.data());
  const std::vector<const std::byte*> inner = row_pointers(gate, width);
  ThreadPool pool(1);
  GroupedGemm gemm(
      {.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
  std::vector<float> expected(out.size(), -1);
  gemm.run({.rows = inner.data(), .num_rows = kRows, .depth = width}, downs,
           {.data = reinterpret_cast<std::byte*>(expected.data()), .stride_bytes = kColumns * 4});
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected[i] + more_down[i]) << i;
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
  for (const Epilogue& epilogue : {short_one, narrow_one}) {
    const GemmGroup group{
        .first_row = 5, .num_rows = 6, .weights = f32.packed(), .epilogue = epilogue};
    EXPECT_THROW((void)run({&group, 1}, 1), Error);
  }
}

}  // namespace
}  // namespace moesaic
