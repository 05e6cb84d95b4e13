#include "kernels/transposed_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "base/error.h"
#include "tests/kernels/quantized_case.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

constexpr std::int64_t kGradientRows = 19;

std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts = quantized_layouts();
  layouts.push_back({.format = Format::f32});
  layouts.push_back({.format = Format::bf16});
  return layouts;
}

class TransposedGemmTest : public testing::TestWithParam<Layout> {};

struct Problem {
  Problem(const Layout& layout, std::int64_t n, std::int64_t k)
      : values(normal_numbers(n * k, 1, 0.3F)),
        weights(pack_matrix(layout, values, n, k)),
        x(normal_numbers(kGradientRows * n, 2)) {
    for (std::int64_t row = 0; row < kGradientRows; ++row) {
      rows.push_back(reinterpret_cast<const std::byte*>(x.data() + row * n));
    }
    const bool plain = layout.format == Format::f32 || layout.format == Format::bf16;
    if (!plain) values = quantized_values(layout, values, k);
  }

  [[nodiscard]] std::vector<float> run(Isa isa, int threads) const {
    ThreadPool pool(threads);
    TransposedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
    const PackedMatrix& matrix = weights.matrix;
    std::vector<float> out(static_cast<std::size_t>(kGradientRows * matrix.depth));
    const GemmGroup groups[] = {{.num_rows = 17, .weights = matrix},
                                {.first_row = 17, .num_rows = 2, .weights = matrix}};
    gemm.run({.rows = rows.data(), .num_rows = kGradientRows, .depth = matrix.rows}, groups,
             {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = matrix.depth * 4});
    return out;
  }

  std::vector<float> values;
  OwnedMatrix weights;
  std::vector<float> x;
  std::vector<const std::byte*> rows;
};

TEST_P(TransposedGemmTest, is_near_the_product_in_double_precision) {
  for (const auto& [n, k] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {16, 64}, {40, 70}, {129, 33}}) {
    const Problem problem(GetParam(), n, k);
    for (const Isa isa : supported_isas()) {
      const std::vector<float> out = problem.run(isa, 2);
      double difference = 0;
      double magnitude = 0;
      for (std::int64_t r = 0; r < kGradientRows; ++r) {
        for (std::int64_t j = 0; j < k; ++j) {
          double sum = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            sum += static_cast<double>(problem.x[static_cast<std::size_t>(r * n + i)]) *
                   static_cast<double>(problem.values[static_cast<std::size_t>(i * k + j)]);
          }
          magnitude += std::fabs(sum);
          difference += std::fabs(out[static_cast<std::size_t>(r * k + j)] - sum);
        }
      }
      EXPECT_LE(difference, 0.01 * magnitude) << isa_name(isa) << " " << n << " x " << k;
    }
  }
}

// The loss sum(y * t) of y = x W^T has the gradient t W; its change along a direction is measured.
TEST_P(TransposedGemmTest, is_the_gradient_of_the_forward_product) {
  const std::int64_t n = 40;
  const std::int64_t k = 70;
  const Problem problem(GetParam(), n, k);
  if (is_integer(GetParam().format)) GTEST_SKIP() << "int8 activations are steps, not slopes";
  const std::vector<float> point = normal_numbers(k, 3);
  const std::vector<float> direction = normal_numbers(k, 4);
  const auto loss = [&](float step) {
    std::vector<float> moved(point);
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
    const auto* row = reinterpret_cast<const std::byte*>(moved.data());
    const Buffer<float> y =
        multiply(find_gemm_kernel(Isa::scalar, GetParam().format),
                 {.rows = &row, .num_rows = 1, .depth = k}, problem.weights.matrix);
    double sum = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      sum += static_cast<double>(y.data()[i]) * static_cast<double>(problem.x[i]);
    }
    return sum;
  };
  const std::vector<float> gradient = problem.run(Isa::scalar, 1);
  double expected = 0;
  double size = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
    expected += static_cast<double>(gradient[i]) * static_cast<double>(direction[i]);
    size += std::fabs(static_cast<double>(gradient[i]) * static_cast<double>(direction[i]));
  }
  EXPECT_NEAR((loss(1) - loss(-1)) / 2, expected, 0.01 * size);
}

TEST_P(TransposedGemmTest, gives_the_same_bits_on_every_instruction_set_of_the_tile_order) {
  const Problem problem(GetParam(), 100, 130);
  const std::vector<float> scalar = problem.run(Isa::scalar, 1);
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::avx512_bf16) continue;  // has an order of its own
    EXPECT_EQ(first_difference(problem.run(isa, 3), scalar), -1) << isa_name(isa);
  }
}

TEST_P(TransposedGemmTest, results_go_where_the_input_has_their_k) {
  Problem problem(GetParam(), 20, 70);
  const std::vector<float> plain = problem.run(Isa::scalar, 1);
  std::vector<std::int32_t> order(70);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  problem.weights.matrix.order = order.data();
  const std::vector<float> ordered = problem.run(Isa::scalar, 1);
  for (std::size_t r = 0; r < kGradientRows; ++r) {
    for (std::size_t j = 0; j < 70; ++j) {
      ASSERT_EQ(ordered[r * 70 + static_cast<std::size_t>(order[j])], plain[r * 70 + j]);
    }
  }
}

// An order, even that which they have, wants all of the depth at once.
TEST_P(TransposedGemmTest, a_deep_product_in_pieces_has_the_bits_of_a_whole_one) {
  Problem problem(GetParam(), 4100, 34);
  const Isa isa = supported_isas().back();
  const std::vector<float> in_pieces = problem.run(isa, 3);
  std::vector<std::int32_t> order(34);
  std::iota(order.begin(), order.end(), 0);
  problem.weights.matrix.order = order.data();
  EXPECT_EQ(first_difference(in_pieces, problem.run(isa, 3)), -1);
}

// A job of a slab makes up to 256 columns: many threads need many slabs ready.
TEST(TransposedGemm, packs_no_more_than_it_tells_for_any_number_of_threads) {
  const Isa isa = supported_isas().back();
  const Layout layout{.format = Format::bf16};
  std::int64_t least = 0;  // of one thread
  for (const int threads : {1, 2, 64}) {
    ThreadPool pool(threads);
    const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool};
    for (const std::int64_t columns : {34, 300, 600}) {
      const Problem problem(layout, 16 * 2048 + 70, columns);
      TransposedGemm gemm(compute);
      std::vector<float> out(static_cast<std::size_t>(kGradientRows * columns));
      const GemmGroup group{.num_rows = kGradientRows, .weights = problem.weights.matrix};
      const std::int64_t depth = group.weights.rows;
      gemm.run({.rows = problem.rows.data(), .num_rows = kGradientRows, .depth = depth},
               {&group, 1},
               {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = columns * 4});
      const std::int64_t told = TransposedGemm::packed_bytes(
          compute.gemm(Format::bf16), {.rows = kGradientRows, .depth = depth, .columns = columns},
          threads);
      EXPECT_LE(gemm.scratch_bytes(), told * 5 / 4)
          << threads << " threads, " << columns << " columns";
      if (threads == 1) least = std::max(least, gemm.scratch_bytes());
      EXPECT_TRUE(threads < 64 || gemm.scratch_bytes() > 2 * least) << gemm.scratch_bytes();
    }
  }
}

// As gradients of gate and up add up: the second product adds to what the first one has written.
TEST_P(TransposedGemmTest, can_add_to_its_own_output) {
  Problem problem(GetParam(), 40, 70);
  std::vector<std::int32_t> order(70);
  std::iota(order.rbegin(), order.rend(), 0);
  ThreadPool pool(2);
  const Isa isa = supported_isas().back();
  TransposedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
  for (const bool ordered : {false, true}) {
    problem.weights.matrix.order = ordered ? order.data() : nullptr;
    const std::vector<float> once = problem.run(isa, 1);
    std::vector<float> out(once);
    const GemmGroup group{.num_rows = kGradientRows,
                          .weights = problem.weights.matrix,
                          .epilogue = {.addend = {out.data(), kGradientRows, 70}}};
    gemm.run({.rows = problem.rows.data(), .num_rows = kGradientRows, .depth = 40}, {&group, 1},
             {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = 70 * 4});
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], once[i] + once[i]);
  }
}

// More rows than a slab has, more k than a job, and bf16 results.
TEST_P(TransposedGemmTest, rows_of_several_slabs_do_not_depend_on_each_other) {
  const Problem problem(GetParam(), 48, 300);
  const std::int64_t count = 600;
  std::vector<const std::byte*> rows;
  for (std::int64_t row = 0; row < count; ++row) {
    rows.push_back(problem.rows[static_cast<std::size_t>(row % kGradientRows)]);
  }
  for (const Isa isa : supported_isas()) {
    const std::vector<float> few = problem.run(isa, 1);
    ThreadPool pool(3);
    TransposedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
    std::vector<BFloat16> out(static_cast<std::size_t>(count * 300));
    const GemmGroup group{.num_rows = count, .weights = problem.weights.matrix};
    gemm.run({.rows = rows.data(), .num_rows = count, .depth = 48}, {&group, 1},
             {.data = reinterpret_cast<std::byte*>(out.data()),
              .stride_bytes = 300 * 2,
              .element = RowSource::Element::bf16});
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i].bits, to_bfloat16(few[i % (kGradientRows * 300)]).bits)
          << isa_name(isa) << " " << i;
    }
  }
}

/// 4.7 MiB of results, which go past the caches where their rows are whole cache lines.
TEST(TransposedGemm, results_that_no_cache_holds_are_those_of_fewer_rows) {
  constexpr std::int64_t kWide = 4096;
  const Problem problem({.format = Format::bf16}, 20, kWide);
  std::vector<const std::byte*> rows;
  for (std::size_t i = 0; i < 300; ++i) rows.push_back(problem.rows[i * i % kGradientRows]);
  for (const Isa isa : supported_isas()) {
    ThreadPool pool(2);
    TransposedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
    const auto rows_from = [&](std::size_t first, std::int64_t stride) {
      const auto count = static_cast<std::int64_t>(rows.size() - first);
      Buffer<float> out;
      out.reserve(count * stride);
      const GemmGroup group{.num_rows = count, .weights = problem.weights.matrix};
      gemm.run({.rows = rows.data() + first, .num_rows = count, .depth = 20}, {&group, 1},
               {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = stride * 4});
      return out;
    };
    const Buffer<float> few = rows_from(200, kWide);
    for (const std::int64_t stride : {kWide, kWide + 16, kWide + 1}) {
      const Buffer<float> all = rows_from(0, stride);
      for (std::int64_t row = 0; row < 100; ++row) {
        const float* const expected = few.data() + row * kWide;
        ASSERT_TRUE(std::equal(expected, expected + kWide, all.data() + (200 + row) * stride))
            << isa_name(isa) << ", row " << 200 + row << ", stride " << stride;
      }
    }
  }
}

/// Products of 19 rows with a matrix of 40 x 70, in f32; in `change` they become others.
std::string refusal_of_products(
    const std::function<void(std::vector<TransposedProduct>&, std::vector<GemmGroup>&)>& change) {
  const Problem problem({.format = Format::f32}, 40, 70);
  ThreadPool pool(1);
  TransposedGemm gemm(
      {.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
  std::vector<float> out(kGradientRows * 70);
  std::vector<GemmGroup> groups(2, {.num_rows = kGradientRows, .weights = problem.weights.matrix});
  const RowSource input{.rows = problem.rows.data(), .num_rows = kGradientRows, .depth = 40};
  std::vector<TransposedProduct> products = {{input, std::span(groups).first(1)},
                                             {input, std::span(groups).last(1)}};
  change(products, groups);
  try {
    gemm.run(products, {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = 70 * 4});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    const std::string message = error.what();
    return message.substr(message.find(": ") + 2);
  }
  return "no error";
}

/// The same, of the second group alone.
std::string refusal_of_group(const std::function<void(GemmGroup&)>& change) {
  return refusal_of_products(
      [&](std::vector<TransposedProduct>&, std::vector<GemmGroup>& groups) { change(groups[1]); });
}

TEST(TransposedGemm, refuses_groups_that_do_not_fit) {
  EXPECT_EQ(refusal_of_group([](GemmGroup&) {}), "no error");
  const std::string rows = "a transposed product of rows ";
  EXPECT_EQ(refusal_of_group([](GemmGroup& group) { group.first_row = 1; }),
            rows + "1 to 20 of 19, depth 40, with a f32 matrix 40 x 70");
  EXPECT_EQ(refusal_of_group([](GemmGroup& group) { group.first_row = -1; }),
            rows + "-1 to 18 of 19, depth 40, with a f32 matrix 40 x 70");
  EXPECT_EQ(refusal_of_group([](GemmGroup& group) { group.weights.rows = 41; }),
            rows + "0 to 19 of 19, depth 40, with a f32 matrix 41 x 70");
  std::vector<float> few(18 * 70);
  const std::string epilogue = "a transposed product with 70 columns and an addend of ";
  EXPECT_EQ(refusal_of_group([&](GemmGroup& group) {
              group.epilogue.addend = {few.data(), 18, 70};
            }),
            epilogue + "18 x 70");
  EXPECT_EQ(refusal_of_group([&](GemmGroup& group) { group.epilogue.bias = few.data(); }),
            epilogue + "0 x 0");
  EXPECT_EQ(refusal_of_group([&](GemmGroup& group) {
              group.epilogue.keep = {few.data(), 18, 70};
            }),
            epilogue + "0 x 0");
}

TEST(TransposedGemm, adds_products_of_one_form_alone) {
  const std::string forms = "transposed products of different forms are added";
  std::vector<std::int32_t> order(70);
  std::iota(order.rbegin(), order.rend(), 0);
  EXPECT_EQ(refusal_of_group([](GemmGroup& group) { group.num_rows = 18; }), forms);
  EXPECT_EQ(refusal_of_group([](GemmGroup& group) { group.weights.depth = 69; }), forms);
  EXPECT_EQ(refusal_of_group([&](GemmGroup& group) { group.weights.order = order.data(); }), forms);
  EXPECT_EQ(refusal_of_group([](GemmGroup& group) { group.weights.layout.format = Format::bf16; }),
            forms);
  EXPECT_EQ(
      refusal_of_products([](std::vector<TransposedProduct>& products,
                             std::vector<GemmGroup>& groups) { products[1].groups = groups; }),
      "transposed products of 1 and of 2 groups are added");
}

TEST(TransposedGemm, goes_on_with_matrices_that_fit_alone) {
  const OwnedMatrix low = pack_matrix({.format = Format::f32}, std::vector<float>(8 * 70), 8, 70);
  const OwnedMatrix to_low =
      pack_matrix({.format = Format::f32}, std::vector<float>(40 * 8), 40, 8);
  std::vector<float> inner(kGradientRows * 8);
  const LowRank fits{
      .inner = {inner.data(), kGradientRows, 8}, .matrix = low.matrix, .projection = to_low.matrix};
  const auto refusal = [&](const std::function<void(GemmGroup&)>& change) {
    return refusal_of_group([&](GemmGroup& group) {
      group.epilogue.low_rank = fits;
      change(group);
    });
  };
  EXPECT_EQ(refusal([](GemmGroup&) {}), "no error");
  const std::string on = "a transposed product with 70 columns goes on with ";
  EXPECT_EQ(refusal([&](GemmGroup& group) {
              group.epilogue.low_rank.inner = {inner.data(), kGradientRows - 1, 8};
            }),
            on + "18 x 8 times a matrix 8 x 70");
  EXPECT_EQ(refusal([](GemmGroup& group) { group.epilogue.low_rank.matrix.rows = 7; }),
            on + "19 x 8 times a matrix 7 x 70");
  EXPECT_EQ(refusal([](GemmGroup& group) { group.epilogue.low_rank.matrix.depth = 71; }),
            on + "19 x 8 times a matrix 8 x 71");
  const std::string projects = "a transposed product of 40 rows projects to 8 by a matrix ";
  EXPECT_EQ(refusal([](GemmGroup& group) { group.epilogue.low_rank.projection.rows = 41; }),
            projects + "41 x 8");
  EXPECT_EQ(refusal([](GemmGroup& group) { group.epilogue.low_rank.projection.depth = 9; }),
            projects + "40 x 9");
  EXPECT_EQ(refusal([](GemmGroup& group) {
              group.epilogue.low_rank.projection.layout.format = Format::bf16;
            }),
            projects + "40 x 8");
}

INSTANTIATE_TEST_SUITE_P(, TransposedGemmTest, testing::ValuesIn(all_layouts()),
                         [](const auto& layout) { return layout_name(layout.param); });

}  // namespace
}  // namespace moesaic
