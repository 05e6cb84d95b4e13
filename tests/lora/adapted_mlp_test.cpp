// MLPs with adapters, forward and backward, against double precision and finite differences.

#include "src/lora/adapted_mlp.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/lora/naive_mlp.h"

namespace moesaic {
namespace {

constexpr std::int64_t kHidden = 36;
constexpr std::int64_t kWidth = 20;

/// Rows through five MLPs: of ranks 2 and 3 (with inputs in an order of its own), without rows,
/// without adapters, with one of rank 40 for up alone.
struct Case {
  explicit Case(double dropout = 0) : share(dropout) {
    for (std::int64_t row = 0; row < kRows; ++row) keys.push_back(dropout_row_key(3, row));
    for (const std::int64_t rank : {2, 3, 2, 0, 40}) {
      mlps.push_back(naive::random_mlp({kHidden, kWidth, rank}, random));
    }
    mlps[4].gate.adapter.reset();
    mlps[4].down.adapter.reset();
    x = naive::random_matrix(kRows, kHidden, 1, random);
    dy = naive::random_matrix(kRows, kHidden, 1, random);
    weights = naive::random_matrix(1, kRows, 1, random);
  }

  /// sum over the rows of an MLP of weight <dy, y>
  [[nodiscard]] double loss(std::size_t mlp) const {
    double sum = 0;
    for (std::int64_t r = kStarts[mlp]; r < kStarts[mlp + 1]; ++r) {
      sum += weights.values[index(r)] * product(r);
    }
    return sum;
  }
  /// <dy, y> of a row.
  [[nodiscard]] double product(std::int64_t r) const {
    const std::vector<double> y = result(r);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += dy.row(r)[i] * y[i];
    return sum;
  }
  [[nodiscard]] std::vector<double> result(std::int64_t r) const {
    return mlps[index(mlp_of(r))]({x.row(r), x.row(r) + kHidden}, {share, keys[index(r)]});
  }
  static std::int64_t mlp_of(std::int64_t row) {
    std::int64_t mlp = 0;
    while (kStarts[index(mlp) + 1] <= row) ++mlp;
    return mlp;
  }
  static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

  static constexpr std::int64_t kRows = 57;
  static constexpr std::array<std::int64_t, 6> kStarts = {0, 5, 45, 45, 49, kRows};
  /// Samples of each MLP.
  static constexpr std::array<SampleRange, 7> kSamples = {
      {{0, 2}, {2, 3}, {5, 33}, {38, 7}, {45, 4}, {49, 1}, {50, 7}}};

  double share;
  std::vector<std::uint64_t> keys;  // [rows]
  std::mt19937 random{17};
  std::vector<naive::Mlp> mlps;
  naive::Matrix x, dy, weights;
};

struct Results {
  std::vector<float> y, dx, weight_gradients;
  AdapterGradients gradients;
};

/// The same, computed by MlpProducts.
class Products {
 public:
  /// Matrices are packed in `base`; `of` is changed to what they then count for.
  Products(Case& of, const Layout& base, int threads)
      : case_(of), packed_(Format::bf16, base), pool_(threads), products_(gemm_products()) {
    adapters_.reserve(15);
    for (naive::Mlp& mlp : of.mlps) {
      mlps_.push_back(packed_.pack(mlp, adapters_));
      for (naive::Projection* projection : {&mlp.gate, &mlp.up, &mlp.down}) {
        projection->matrix = naive::rounded_to(base, projection->matrix);
      }
    }
  }
  Products(const Case& of, Format format, int threads)
      : case_(of), packed_(format), pool_(threads), products_(gemm_products()) {
    adapters_.reserve(15);
    for (const naive::Mlp& mlp : of.mlps) mlps_.push_back(packed_.pack(mlp, adapters_));
    mlps_[1].weights = {.gate = packed_.pack_reversed(of.mlps[1].gate.matrix),
                        .up = packed_.pack_reversed(of.mlps[1].up.matrix),
                        .down = packed_.pack_reversed(of.mlps[1].down.matrix)};
  }

  [[nodiscard]] const std::vector<AdapterPlace>& places() const { return packed_.places(); }
  [[nodiscard]] const std::vector<AdaptedMlp>& mlps() const { return mlps_; }

  [[nodiscard]] Results operator()(std::span<const SampleRange> samples) {
    const std::vector<float> x = case_.x.floats();
    const std::vector<float> dy = case_.dy.floats();
    const std::vector<float> weights = case_.weights.floats();
    Results results{
        .y = x,
        .dx = x,
        .weight_gradients = weights,
        .gradients = AdapterGradients(packed_.places(), find_vector_kernels(Isa::scalar))};
    std::vector<MlpRows> groups;
    for (std::size_t m = 0; m < mlps_.size(); ++m) {
      groups.push_back({Case::kStarts[m], Case::kStarts[m + 1] - Case::kStarts[m], &mlps_[m]});
    }
    MlpStash stash;
    const Dropout dropout{case_.share, case_.keys};
    MatrixRows x_rows;
    MatrixRows dy_rows;
    const RowSource rows = x_rows.of({x.data(), Case::kRows, kHidden});
    products_.forward({.x = rows,
                       .groups = groups,
                       .y = {results.y.data(), Case::kRows, kHidden},
                       .keep = &stash,
                       .dropout = dropout});
    products_.backward({.x = rows,
                        .groups = groups,
                        .dy = dy_rows.of({dy.data(), Case::kRows, kHidden}),
                        .row_weights = weights.data(),
                        .stash = stash,
                        .dx = {results.dx.data(), Case::kRows, kHidden},
                        .weight_gradients = results.weight_gradients.data(),
                        .samples = samples,
                        .dropout = dropout},
                       results.gradients);
    return results;
  }

 private:
  MlpProducts gemm_products() {
    const Isa isa = supported_isas().back();
    const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool_};
    gemm_ = std::make_unique<GroupedGemm>(compute);
    adapter_products_ = std::make_unique<AdapterProducts>(compute, *gemm_);
    return {compute, *gemm_, *adapter_products_};
  }

  const Case& case_;
  naive::Packed packed_;
  ThreadPool pool_;
  std::unique_ptr<GroupedGemm> gemm_;
  std::unique_ptr<AdapterProducts> adapter_products_;
  MlpProducts products_;
  std::vector<Adapter> adapters_;
  std::vector<AdaptedMlp> mlps_;
};

void expect_near(Case& of, Products& run, double tolerance) {
  const Results results = run(Case::kSamples);
  std::vector<double> y, dx, weight_gradients;
  for (std::int64_t r = 0; r < Case::kRows; ++r) {
    for (const double value : of.result(r)) y.push_back(value);
    weight_gradients.push_back(of.product(r));
    for (std::int64_t i = 0; i < kHidden; ++i) {
      dx.push_back(naive::derivative(of.x.row(r)[i], [&] { return of.product(r); }));
    }
  }
  EXPECT_LE(naive::distance(results.y, y), tolerance);
  EXPECT_LE(naive::distance(results.dx, dx), tolerance);
  EXPECT_LE(naive::distance(results.weight_gradients, weight_gradients), tolerance);
  const auto check = [&](std::size_t m, naive::Projection& of_mlp, const Adapter* adapter) {
    ASSERT_EQ(of_mlp.adapter.has_value(), adapter != nullptr);
    if (adapter == nullptr) return;
    const AdapterPlace& place = run.places()[static_cast<std::size_t>(adapter->index)];
    const auto has_rows = Case::kStarts[m + 1] > Case::kStarts[m];
    for (const bool is_b : {false, true}) {
      naive::Matrix& factor = is_b ? of_mlp.adapter->b : of_mlp.adapter->a;
      const auto sums = naive::values_of(results.gradients, is_b ? place.b : place.a);
      EXPECT_EQ(results.gradients.touched(adapter->index, is_b ? Factor::b : Factor::a), has_rows);
      if (!has_rows) continue;
      const auto expected = naive::gradient(factor, [&] { return of.loss(m); });
      EXPECT_LE(naive::distance(sums, expected), tolerance) << "MLP " << m << " factor " << is_b;
    }
  };
  for (std::size_t m = 0; m < of.mlps.size(); ++m) {
    check(m, of.mlps[m].gate, run.mlps()[m].gate);
    check(m, of.mlps[m].up, run.mlps()[m].up);
    check(m, of.mlps[m].down, run.mlps()[m].down);
  }
}

TEST(MlpProducts, equal_finite_differences) {
  Case rows;
  Products run(rows, Format::f32, 2);
  expect_near(rows, run, 2e-6);
}

TEST(MlpProducts, are_near_finite_differences_in_bf16) {
  Case rows;
  Products run(rows, Format::bf16, 2);
  expect_near(rows, run, 1.5e-2);
}

TEST(MlpProducts, equal_finite_differences_with_biases_and_clamped_gating) {
  for (const double dropout : {0.0, 0.3}) {
    Case rows(dropout);
    for (naive::Mlp& mlp : rows.mlps) naive::add_biases(mlp, rows.random);
    Products run(rows, Format::f32, 2);
    expect_near(rows, run, 2e-6);
  }
  Case rows;
  for (naive::Mlp& mlp : rows.mlps) naive::add_biases(mlp, rows.random);
  Products run(rows, Format::bf16, 2);
  expect_near(rows, run, 1.5e-2);
}

TEST(MlpProducts, leave_out_what_dropout_says) {
  Case rows(0.3);
  Products run(rows, Format::f32, 2);
  expect_near(rows, run, 2e-6);
}

TEST(MlpProducts, are_near_finite_differences_with_quantised_weights) {
  // Integer activations, groups, scales of rows, and scales of groups and matrix.
  for (const Layout& layout :
       {Layout{.format = Format::int8}, Layout{.format = Format::int4_group, .group = 32},
        Layout{.format = Format::fp8_channel}, Layout{.format = Format::nvfp4}}) {
    SCOPED_TRACE(format_name(layout.format));
    Case rows;
    Products run(rows, layout, 2);
    expect_near(rows, run, is_integer(layout.format) ? 6e-2 : 2e-2);
  }
}

TEST(MlpProducts, bits_do_not_depend_on_threads_or_on_samples_beside) {
  const Case rows(0.3);
  for (const Format format : {Format::f32, Format::bf16}) {
    const Results all = Products(rows, format, 1)(Case::kSamples);
    const Results threads = Products(rows, format, 3)(Case::kSamples);
    EXPECT_EQ(threads.y, all.y);
    EXPECT_EQ(threads.dx, all.dx);
    EXPECT_TRUE(std::ranges::equal(threads.gradients.sums(), all.gradients.sums()));
    std::vector<std::int64_t> sums(all.gradients.sums().size());
    for (const SampleRange& sample : Case::kSamples) {
      const Results one = Products(rows, format, 1)({&sample, 1});
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += one.gradients.sums()[i];
    }
    EXPECT_TRUE(std::ranges::equal(sums, all.gradients.sums()));
  }
}

}  // namespace
}  // namespace moesaic
