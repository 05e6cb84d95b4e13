// Adapters of parts of a joined matrix, as of queries, keys and values.

#include "src/lora/adapter_products.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/lora/naive_mlp.h"

namespace moesaic {
namespace {

constexpr std::int64_t kRows = 23;
constexpr std::int64_t kIn = 40;
constexpr std::int64_t kOut = 30;

/// Two adapters of a matrix with 30 rows, for rows 0 to 11 and 18 to 29.
struct ProductCase {
  explicit ProductCase(double dropout = 0) : share(dropout) {
    for (std::int64_t row = 0; row < kRows; ++row) keys.push_back(dropout_row_key(5, row));
    for (const std::int64_t rank : {4, 3}) {
      adapters.push_back(naive::random_adapter(kIn, 12, rank, random));
    }
    adapters[1].first_row = 18;
    x = naive::random_matrix(kRows, kIn, 1, random);
    dy = naive::random_matrix(kRows, kOut, 1, random);
  }

  [[nodiscard]] std::vector<double> added(std::int64_t row) const {
    std::vector<double> y(kOut);
    for (const naive::LowRank& adapter : adapters) {
      naive::add_low_rank(adapter, {x.row(row), x.row(row) + kIn}, y,
                          {share, keys[static_cast<std::size_t>(row)]});
    }
    return y;
  }
  [[nodiscard]] double loss() const {
    double sum = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::vector<double> y = added(r);
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy.row(r)[i] * y[i];
    }
    return sum;
  }

  double share;
  std::vector<std::uint64_t> keys;  // [rows]
  std::mt19937 random{3};
  std::vector<naive::LowRank> adapters;
  naive::Matrix x, dy;
};

void expect_near_differences(ProductCase& joined) {
  naive::Packed packed(Format::f32);
  ThreadPool pool(2);
  const Isa isa = supported_isas().back();
  const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool};
  GroupedGemm gemm(compute);
  AdapterProducts products(compute, gemm);
  const std::vector<float> x = joined.x.floats();
  const std::vector<float> dy = joined.dy.floats();
  std::vector<float> y(static_cast<std::size_t>(kRows * kOut), 1.0F);
  std::vector<float> dx(x.size(), 1.0F);
  MatrixRows x_rows;
  MatrixRows dy_rows;
  const RowSource x_source = x_rows.of({x.data(), kRows, kIn});
  const RowSource dy_source = dy_rows.of({dy.data(), kRows, kOut});
  std::vector<Adapter> adapters;
  for (const naive::LowRank& adapter : joined.adapters) adapters.push_back(packed.pack(adapter));
  AdapterGradients gradients(packed.places());
  const std::array<SampleRange, 2> samples = {{{0, 9}, {9, 14}}};
  for (const Adapter& adapter : adapters) {
    const AdapterRows all{.num_rows = kRows, .adapter = &adapter};
    const Dropout dropout{joined.share, joined.keys};
    products.add_forward(x_source, {&all, 1}, {y.data(), kRows, kOut}, dropout);
    products.add_backward({.x = x_source,
                           .dy = dy_source,
                           .dx = {dx.data(), kRows, kIn},
                           .samples = samples,
                           .dropout = dropout},
                          {&all, 1}, gradients);
  }
  std::vector<double> expected_y;
  std::vector<double> expected_dx = naive::gradient(joined.x, [&] { return joined.loss(); });
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (const double value : joined.added(r)) expected_y.push_back(1 + value);
  }
  for (double& value : expected_dx) value += 1;
  EXPECT_LE(naive::distance(y, expected_y), 1e-6);
  EXPECT_LE(naive::distance(dx, expected_dx), 1e-6);
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const auto loss = [&] { return joined.loss(); };
    EXPECT_LE(naive::distance(naive::values_of(gradients, packed.places()[i].a),
                              naive::gradient(joined.adapters[i].a, loss)),
              1e-6);
    EXPECT_LE(naive::distance(naive::values_of(gradients, packed.places()[i].b),
                              naive::gradient(joined.adapters[i].b, loss)),
              1e-6);
  }
}

TEST(AdapterProducts, work_on_columns_of_a_joined_matrix) {
  ProductCase joined;
  expect_near_differences(joined);
}

TEST(AdapterProducts, leave_the_same_out_forward_and_backward) {
  ProductCase joined(0.4);
  expect_near_differences(joined);
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
