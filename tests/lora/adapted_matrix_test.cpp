// Adapters of parts of a stacked matrix, as of queries, keys and values.

#include "src/lora/adapted_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "src/lora/adapter_set.h"
#include "tests/lora/naive_mlp.h"

namespace moesaic {
namespace {

constexpr std::int64_t kRows = 23;
constexpr std::int64_t kIn = 40;
constexpr std::int64_t kOut = 30;

/// How a pass is run, which decides what products do themselves.
struct Way {
  double dropout = 0;
  bool has_two_scales = false;
  bool is_reversed = false;  // columns of the matrix are packed in another order
};

/// A matrix with 30 rows, a bias, and adapters for rows 0 to 11 and 18 to 29.
struct StackedCase {
  explicit StackedCase(const Way& its_way) : way(its_way) {
    for (std::int64_t row = 0; row < kRows; ++row) keys.push_back(dropout_row_key(5, row));
    std::vector<AdapterSpec> specs;
    for (const std::int64_t rank : {4, 3}) {
      adapters.push_back(naive::random_adapter(kIn, 12, rank, random));
      naive::LowRank& adapter = adapters.back();
      if (specs.size() == 1) adapter.first_row = 18;
      if (specs.size() == 1 && way.has_two_scales) adapter.scale = 1.3;
      specs.push_back({.site = {.module = std::to_string(rank),
                                .first_row = adapter.first_row,
                                .stacked_rows = kOut,
                                .out = 12,
                                .in = kIn},
                       .rank = rank,
                       .scale = static_cast<float>(adapter.scale)});
    }
    set.emplace(specs, Format::f32);
    for (std::size_t i = 0; i < adapters.size(); ++i) {
      adapters[i].key = set->packed()[i].key;
      const AdapterFactors<float> factors = set->factors(static_cast<std::int64_t>(i));
      std::ranges::copy(adapters[i].a.floats(), factors.a.data());
      std::ranges::copy(adapters[i].b.floats(), factors.b.data());
    }
  }

  [[nodiscard]] std::vector<double> results(std::int64_t row) const {
    const std::vector<double> input(x.row(row), x.row(row) + kIn);
    std::vector<double> y = naive::times(matrix, input);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias.values[i];
    for (const naive::LowRank& adapter : adapters) {
      naive::add_low_rank(adapter, input, y, {way.dropout, keys[static_cast<std::size_t>(row)]});
    }
    return y;
  }
  [[nodiscard]] double loss() const {
    double sum = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::vector<double> y = results(r);
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy.row(r)[i] * y[i];
    }
    return sum;
  }

  Way way;
  std::vector<std::uint64_t> keys;  // [rows]
  std::mt19937 random{3};
  naive::Matrix x = naive::random_matrix(kRows, kIn, 1, random);
  naive::Matrix dy = naive::random_matrix(kRows, kOut, 1, random);
  naive::Matrix matrix = naive::random_matrix(kOut, kIn, 0.4F, random);
  naive::Matrix bias = naive::random_matrix(1, kOut, 1, random);
  std::vector<naive::LowRank> adapters;
  std::optional<AdapterSet> set;
};

/// What products make of a case.
struct StackedResults {
  std::vector<float> y = std::vector<float>(kRows * kOut);
  std::vector<float> dx = std::vector<float>(kRows * kIn);
  std::optional<AdapterGradients> gradients;
};

StackedResults run_products(StackedCase& stacked) {
  ThreadPool pool(2);
  const Isa isa = supported_isas().back();
  const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool};
  GroupedGemm gemm(compute);
  AdapterProducts adapters(compute, gemm);
  MatrixProducts products(gemm, adapters);
  stacked.set->pack(pool);
  naive::Packed packed(Format::f32);
  const PackedMatrix weights =
      stacked.way.is_reversed ? packed.pack_reversed(stacked.matrix) : packed.pack(stacked.matrix);
  const std::vector<float> x = stacked.x.floats();
  const std::vector<float> dy = stacked.dy.floats();
  const std::vector<float> bias = stacked.bias.floats();
  MatrixRows x_rows;
  MatrixRows dy_rows;
  const RowSource x_source = x_rows.of({x.data(), kRows, kIn});
  const Adapter& adapter = stacked.set->of_matrix(0, 2);
  const Dropout dropout{stacked.way.dropout, stacked.keys};
  const std::array<SampleRange, 2> samples = {{{0, 9}, {9, 14}}};
  StackedResults results;
  results.gradients.emplace(stacked.set->places(), *compute.vector);
  products.forward({.x = x_source,
                    .weights = weights,
                    .adapter = &adapter,
                    .bias = bias.data(),
                    .y = {results.y.data(), kRows, kOut},
                    .dropout = dropout});
  products.backward({.x = x_source,
                     .weights = weights,
                     .adapter = &adapter,
                     .dy = dy_rows.of({dy.data(), kRows, kOut}),
                     .dx = {results.dx.data(), kRows, kIn},
                     .samples = samples,
                     .dropout = dropout},
                    *results.gradients);
  return results;
}

void expect_near_differences(const Way& way) {
  StackedCase stacked(way);
  const StackedResults results = run_products(stacked);
  std::vector<double> expected_y;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (const double value : stacked.results(r)) expected_y.push_back(value);
  }
  EXPECT_LE(naive::distance(results.y, expected_y), 1e-6);
  const auto loss = [&] { return stacked.loss(); };
  EXPECT_LE(naive::distance(results.dx, naive::gradient(stacked.x, loss)), 1e-6);
  for (std::size_t i = 0; i < stacked.adapters.size(); ++i) {
    const AdapterPlace& place = stacked.set->places()[i];
    EXPECT_LE(naive::distance(naive::values_of(*results.gradients, place.a),
                              naive::gradient(stacked.adapters[i].a, loss)),
              1e-6);
    EXPECT_LE(naive::distance(naive::values_of(*results.gradients, place.b),
                              naive::gradient(stacked.adapters[i].b, loss)),
              1e-6);
  }
}

TEST(AdaptedMatrix, adapters_of_some_of_its_rows_go_along_with_its_products) {
  expect_near_differences({});
}

TEST(AdaptedMatrix, adapters_with_scales_of_their_own_are_projected_apart) {
  expect_near_differences({.has_two_scales = true});
}

TEST(AdaptedMatrix, each_adapter_leaves_the_same_out_forward_and_backward) {
  expect_near_differences({.dropout = 0.4});
}

TEST(AdaptedMatrix, columns_may_be_packed_in_another_order) {
  expect_near_differences({.is_reversed = true});
  expect_near_differences({.has_two_scales = true, .is_reversed = true});
}

TEST(AdapterSet, adapters_that_are_not_of_one_matrix_have_no_composite) {
  StackedCase stacked({});
  EXPECT_EQ(stacked.set->of_matrix(0, 2).rank(), 7);
  EXPECT_THROW((void)stacked.set->of_matrix(0, 1), Error);
  EXPECT_THROW((void)stacked.set->of_matrix(1, 1), Error);
}

TEST(DropoutMask, has_its_share_of_zeros_everywhere_and_no_two_alike) {
  constexpr std::int64_t kElements = 4000;
  for (const double share : {0.05, 0.5, 0.9}) {
    std::vector<std::vector<float>> masks;
    for (const std::uint64_t module : {1U, 2U}) {
      for (const std::int64_t step : {0, 1}) {
        for (const std::int64_t sample : {0, 1}) {
          for (const std::int64_t token : {0, 1}) {
            const std::uint64_t key = dropout_sample_key(7, step, sample);
            const DropoutMask mask(share, dropout_row_key(key, token), module);
            const std::vector<float> ones(kElements - 1, 1.0F);  // an odd number
            std::vector<float>& kept = masks.emplace_back(ones.size());
            mask.copy(std::span(ones), kept.data());
            const auto zeros = static_cast<double>(std::ranges::count(kept, 0.0F));
            EXPECT_NEAR(zeros / kElements, share, 5 * std::sqrt(share * (1 - share) / kElements));
            for (std::size_t i = 0; i < kept.size(); ++i) {
              ASSERT_EQ(mask.keeps(static_cast<std::int64_t>(i)), kept[i] != 0);
            }
          }
        }
      }
    }
    std::ranges::sort(masks);
    EXPECT_EQ(std::ranges::adjacent_find(masks), masks.end());
  }
}

}  // namespace
}  // namespace moesaic
