// Products of each head's rows with its own rows of a matrix and of an adapter.

#include "src/model/head_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "src/lora/adapter_set.h"
#include "tests/model/packed_weight.h"

namespace moesaic {
namespace {

constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kModuleRows = 48;  // of a head
constexpr std::int64_t kFirstRow = 16;    // of those that the matrix has
constexpr std::int64_t kHeadRows = 32;
constexpr std::int64_t kInputs = 20;
constexpr std::int64_t kTokens = 7;
constexpr std::int64_t kRank = 3;
constexpr double kScale = 1.5;
constexpr HeadRange kLastTwo{.first = 1, .count = 2, .rows = kTokens};

struct Numbers {
  Doubles values;
  std::int64_t cols;

  Numbers(std::int64_t rows, std::int64_t columns, unsigned seed)
      : values(exact_numbers(rows * columns, seed, 0.5)), cols(columns) {}
  double operator()(std::int64_t row, std::int64_t col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
};

/// What is asked of HeadProducts, and what it is to give.
struct HeadCase {
  explicit HeadCase(bool its_adapter, bool its_order)
      : has_adapter(its_adapter), has_order(its_order) {
    order.resize(kInputs);
    std::iota(order.rbegin(), order.rend(), 0);
    Doubles stored = w.values;  // columns as they are packed
    for (std::int64_t row = 0; has_order && row < kHeads * kHeadRows; ++row) {
      for (std::int64_t j = 0; j < kInputs; ++j) {
        stored[static_cast<std::size_t>(row * kInputs + j)] = w(row, kInputs - 1 - j);
      }
    }
    packed = pack_weight(stored, kInputs, Precision::f32);
    if (has_order) packed.matrix.order = order.data();
    set.emplace(
        std::vector<AdapterSpec>{
            {.site = {.module = "all", .out = kHeads * kModuleRows, .in = kInputs, .heads = kHeads},
             .rank = kRank,
             .scale = static_cast<float>(kScale)}},
        Format::f32);
    std::ranges::copy(as_floats(a.values), set->factors(0).a.data());
    std::ranges::copy(as_floats(b.values), set->factors(0).b.data());
    set->pack(pool);
  }

  /// Of head `head`: what the adapter adds to W, and W.
  [[nodiscard]] double weight(std::int64_t head, std::int64_t n, std::int64_t k) const {
    double sum = w(head * kHeadRows + n, k);
    for (std::int64_t r = 0; has_adapter && r < kRank; ++r)
      sum += kScale * b_of(head, n, r) * a(r, k);
    return sum;
  }
  [[nodiscard]] double b_of(std::int64_t head, std::int64_t n, std::int64_t r) const {
    return b(head * kModuleRows + kFirstRow + n, r);
  }
  [[nodiscard]] double x_of(std::int64_t head, std::int64_t row, std::int64_t k) const {
    return x(row, head * kInputs + k);
  }
  [[nodiscard]] double y_of(std::int64_t head, std::int64_t row, std::int64_t n) const {
    return y(row, head * kHeadRows + n);
  }
  /// sum(i), i below `count`.
  template <typename Term>
  static double sum(std::int64_t count, const Term& term) {
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) total += term(i);
    return total;
  }
  /// term(head, row) of all rows that are multiplied.
  template <typename Term>
  static double sum_over_rows(const Term& term) {
    return sum(kLastTwo.count, [&](std::int64_t i) {
      return sum(kTokens, [&](std::int64_t row) { return term(kLastTwo.first + i, row); });
    });
  }
  [[nodiscard]] double a_gradient(std::int64_t r, std::int64_t k) const {
    return sum_over_rows([&](std::int64_t head, std::int64_t row) {
      return kScale * x_of(head, row, k) *
             sum(kHeadRows, [&](std::int64_t n) { return y_of(head, row, n) * b_of(head, n, r); });
    });
  }
  [[nodiscard]] double b_gradient(std::int64_t module_row, std::int64_t r) const {
    const std::int64_t head = module_row / kModuleRows;
    const std::int64_t n = module_row % kModuleRows - kFirstRow;
    if (head < kLastTwo.first || n < 0 || n >= kHeadRows) return 0;
    return sum(kTokens, [&](std::int64_t row) {
      return kScale * y_of(head, row, n) *
             sum(kInputs, [&](std::int64_t k) { return a(r, k) * x_of(head, row, k); });
    });
  }
  [[nodiscard]] HeadMatrix matrix() const {
    return {.all = packed.matrix,
            .rows = kHeadRows,
            .adapter = has_adapter ? &set->of_matrix(0, 1) : nullptr,
            .module_rows = kModuleRows,
            .first_row = kFirstRow};
  }

  bool has_adapter, has_order;
  Numbers w{kHeads * kHeadRows, kInputs, 1}, a{kRank, kInputs, 2},
      b{kHeads * kModuleRows, kRank, 3};
  Numbers x{kTokens, kHeads*kInputs, 4}, y{kTokens, kHeads*kHeadRows, 5};
  std::vector<float> x_floats = as_floats(x.values), y_floats = as_floats(y.values);
  HeadRows<const float> x_rows{x_floats.data() + kInputs, kHeads* kInputs, kInputs};
  HeadRows<const float> y_rows{y_floats.data() + kHeadRows, kHeads* kHeadRows, kHeadRows};
  std::vector<std::int32_t> order;
  PackedWeight packed;
  std::optional<AdapterSet> set;
  ThreadPool pool{2};
};

class HeadProductsTest : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  HeadCase its_{std::get<0>(GetParam()), std::get<1>(GetParam())};
  Compute compute_{.isa = supported_isas().back(),
                   .vector = &find_vector_kernels(supported_isas().back()),
                   .pool = &its_.pool};
  GroupedGemm gemm_{compute_};
  AdapterProducts adapters_{compute_, gemm_};
  HeadProducts products_{gemm_, adapters_};

  [[nodiscard]] std::vector<float> forward() {
    std::vector<float> y(kLastTwo.all_rows() * kHeadRows);
    products_.forward(its_.matrix(), kLastTwo, its_.x_rows,
                      {y.data(), kLastTwo.all_rows(), kHeadRows});
    return y;
  }
  [[nodiscard]] std::vector<float> transposed() {
    std::vector<float> x(kLastTwo.all_rows() * kInputs);
    products_.transposed(its_.matrix(), kLastTwo, its_.y_rows,
                         {x.data(), kLastTwo.all_rows(), kInputs});
    return x;
  }
};

INSTANTIATE_TEST_SUITE_P(AdapterAndOrder, HeadProductsTest,
                         testing::Combine(testing::Bool(), testing::Bool()));

TEST_P(HeadProductsTest, every_head_meets_its_own_rows) {
  const std::vector<float> y = forward();
  const std::vector<float> x = transposed();
  for (std::int64_t i = 0; i < kLastTwo.all_rows(); ++i) {
    const std::int64_t head = kLastTwo.first + i / kTokens;
    const std::int64_t row = i % kTokens;
    for (std::int64_t n = 0; n < kHeadRows; ++n) {
      EXPECT_NEAR(y[static_cast<std::size_t>(i * kHeadRows + n)],
                  HeadCase::sum(kInputs,
                                [&](std::int64_t k) {
                                  return its_.x_of(head, row, k) * its_.weight(head, n, k);
                                }),
                  1e-4);
    }
    for (std::int64_t k = 0; k < kInputs; ++k) {
      EXPECT_NEAR(x[static_cast<std::size_t>(i * kInputs + k)],
                  HeadCase::sum(kHeadRows,
                                [&](std::int64_t n) {
                                  return its_.y_of(head, row, n) * its_.weight(head, n, k);
                                }),
                  1e-4);
    }
  }
}

TEST_P(HeadProductsTest, gradients_of_all_heads_meet_in_one_adapter) {
  const std::vector<SampleRange> samples = {{0, 3}, {3, 4}};
  std::vector<float> dx(kLastTwo.all_rows() * kInputs);
  AdapterGradients gradients(its_.set->places(), *compute_.vector);
  products_.backward(its_.matrix(), kLastTwo,
                     {.x = its_.x_rows,
                      .y = its_.y_rows,
                      .gradient = {dx.data(), kLastTwo.all_rows(), kInputs},
                      .samples = samples},
                     gradients);
  std::vector<float> dy(kLastTwo.all_rows() * kHeadRows);
  AdapterGradients of_transposed(its_.set->places(), *compute_.vector);
  products_.transposed_backward(its_.matrix(), kLastTwo,
                                {.x = its_.x_rows,
                                 .y = its_.y_rows,
                                 .gradient = {dy.data(), kLastTwo.all_rows(), kHeadRows},
                                 .samples = samples},
                                of_transposed);
  EXPECT_EQ(dx, transposed());
  EXPECT_EQ(dy, forward());
  EXPECT_TRUE(std::ranges::equal(of_transposed.sums(), gradients.sums()));
  EXPECT_EQ(gradients.touched(0, Factor::a), its_.has_adapter);
  if (!its_.has_adapter) return;
  const AdapterPlace place = its_.set->places()[0];
  const auto found = [&](const FactorPlace& factor, std::int64_t row, std::int64_t col) {
    return AdapterGradients::value(
        gradients.sums()[static_cast<std::size_t>(factor.first + row * factor.cols + col)]);
  };
  for (std::int64_t r = 0; r < kRank; ++r) {
    for (std::int64_t k = 0; k < kInputs; ++k) {
      EXPECT_NEAR(found(place.a, r, k), its_.a_gradient(r, k), 1e-4);
    }
    for (std::int64_t n = 0; n < kHeads * kModuleRows; ++n) {
      EXPECT_NEAR(found(place.b, n, r), its_.b_gradient(n, r), 1e-4) << n;
    }
  }
}

}  // namespace
}  // namespace moesaic
