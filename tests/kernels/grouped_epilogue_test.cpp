// What happens to results of grouped products before they are stored.

#include "tests/kernels/grouped_gemm_case.h"

namespace moesaic {
namespace {

using GroupedEpilogueTest = GroupedGemmTest;

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
TEST_F(GroupedEpilogueTest, an_addend_is_added_behind_the_bias) {
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
TEST_F(GroupedEpilogueTest, gate_and_up_can_be_kept) {
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
TEST_F(GroupedEpilogueTest, an_mlp_adds_to_each_of_its_products) {
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

}  // namespace
}  // namespace moesaic
