#pragma once

#include <gtest/gtest.h>

#include <random>

#include "kernels/grouped_gemm.h"
#include "tests/kernels/gemm_case.h"
#include "tests/kernels/gemm_models.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {

inline constexpr std::int64_t kDepth = 70;    // not a whole number of steps
inline constexpr std::int64_t kColumns = 40;  // not a whole number of panels
inline constexpr std::int64_t kRows = 300;    // more than one task takes

/// A matrix as plain numbers and packed.
struct TestMatrix {
  GemmCase values;
  OwnedMatrix owned;

  [[nodiscard]] const PackedMatrix& packed() const { return owned.matrix; }
};

inline TestMatrix make_matrix(const Layout& layout, unsigned seed, std::int64_t depth = kDepth,
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
inline TestMatrix make_matrix(Format format, unsigned seed, std::int64_t depth = kDepth) {
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

}  // namespace moesaic
