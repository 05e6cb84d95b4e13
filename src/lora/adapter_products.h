#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "kernels/grouped_gemm.h"
#include "kernels/outer_gemm.h"
#include "kernels/transposed_gemm.h"
#include "src/lora/adapter.h"
#include "src/lora/adapter_gradients.h"
#include "src/lora/dropout.h"
#include "src/lora/matrix_rows.h"
#include "src/lora/sample_range.h"

namespace moesaic {

/// Rows [first_row, first_row + num_rows) of a product's input, and an adapter of the matrix that
/// they meet.
struct AdapterRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  const Adapter* adapter = nullptr;
};

/// The rows that gradients of factors are summed over.
struct AdapterGradientInput {
  RowSource x;   // [rows, in] as in the forward pass
  RowSource dy;  // [rows, columns of the product]
  /// [rows, greatest rank] by project() and project_back(); used up.
  MatrixView<float> inner;
  MatrixView<float> back;
  /// [rows] or null: the loss's gradient by the results is dy times it.
  const float* row_weights = nullptr;
  std::span<const SampleRange> samples;  // ascending, each within one group
  Dropout dropout{};                     // as in the forward pass
};

/// A backward pass through adapters.
struct AdapterBackward {
  RowSource x;                           // [rows, in] as in the forward pass
  RowSource dy;                          // [rows, columns of the product]
  MatrixView<float> dx;                  // [rows, in] added to
  std::span<const SampleRange> samples;  // ascending, each within one group
  Dropout dropout{};                     // as in the forward pass
};

/// The first `count` columns.
template <typename T>
[[nodiscard]] MatrixView<T> first_columns(const MatrixView<T>& matrix, std::int64_t count) {
  return {matrix.data(), matrix.rows(), count, matrix.stride()};
}

/// As what a product writes.
[[nodiscard]] inline GemmOutput output_of(const MatrixView<float>& matrix) {
  return {.data = reinterpret_cast<std::byte*>(matrix.data()), .stride_bytes = matrix.stride() * 4};
}

/// The greatest rank of some adapters.
[[nodiscard]] std::int64_t greatest_rank(std::span<const AdapterRows> groups);

/// Products with adapters, and their gradients. No two groups of a call share a row; rows of no
/// group are not touched. With dropout x A^T counts for scale / (1 - share) times what is left of
/// x. Keeps its scratch memory between calls; one object a rank.
class AdapterProducts {
 public:
  /// `gemm` must outlive this.
  AdapterProducts(const Compute& compute, GroupedGemm& gemm);

  /// inner = scale x A^T: in each row the first rank columns of `inner`, [rows, greatest rank].
  void project(const RowSource& x, std::span<const AdapterRows> groups, MatrixView<float> inner,
               const Dropout& dropout = {});
  /// back = scale dy B, the same way.
  void project_back(const RowSource& dy, std::span<const AdapterRows> groups,
                    MatrixView<float> back, const Dropout& dropout = {});
  /// dx += back A, of the elements that are not left out.
  void pass_back(MatrixView<const float> back, std::span<const AdapterRows> groups,
                 MatrixView<float> dx, const Dropout& dropout = {});
  /// The gradients of A and B: for each sample one chain over its rows (OuterGemm), which is added
  /// to `gradients`.
  void add_gradients(const AdapterGradientInput& input, std::span<const AdapterRows> groups,
                     AdapterGradients& gradients);

  /// y += scale (x A^T) B^T, in the adapters' columns alone.
  void add_forward(const RowSource& x, std::span<const AdapterRows> groups, MatrixView<float> y,
                   const Dropout& dropout = {});
  /// dx += scale (dy B) A, and the gradients of A and B.
  void add_backward(const AdapterBackward& pass, std::span<const AdapterRows> groups,
                    AdapterGradients& gradients);

  /// Shared by all that passes gradients back on this rank.
  [[nodiscard]] TransposedGemm& transposed() noexcept { return transposed_; }

 private:
  using Alike = std::span<const AdapterRows>;  // of one rank, for the same columns

  void for_each_alike(std::span<const AdapterRows> groups, const std::function<void(Alike)>& call);
  [[nodiscard]] std::span<const GemmGroup> products(Alike groups, Factor factor,
                                                    MatrixView<const float> addend = {});
  template <typename Call>
  void for_each_mask(Alike groups, const Dropout& dropout, const Call& call);
  [[nodiscard]] RowSource left_of(const RowSource& x, Alike groups, const Dropout& dropout);
  void add_factor(const OuterInput& input, Alike groups, Factor factor,
                  AdapterGradients& gradients);
  void add_results(std::size_t first, std::size_t last, Factor factor,
                   AdapterGradients& gradients) const;

  /// A gradient of one sample.
  struct Part {
    std::int32_t adapter;
    OuterGroup product;
  };

  Compute compute_;
  GroupedGemm& gemm_;
  TransposedGemm transposed_;
  OuterGemm outer_;
  std::vector<AdapterRows> sorted_;
  std::vector<GemmGroup> groups_;
  std::span<const SampleRange> samples_;  // of this backward pass
  std::vector<Part> parts_;
  std::vector<OuterGroup> outer_groups_;
  Buffer<float> inner_;    // [rows, rank] scale x A^T
  Buffer<float> back_;     // [rows, greatest rank] scale dy B
  Buffer<float> results_;  // of OuterGemm
  // With dropout:
  std::vector<std::pair<std::int64_t, const Adapter*>> masked_;  // rows of a call
  Buffer<std::byte> left_;                                       // [rows, in] of x
  std::vector<const std::byte*> left_rows_;
  Buffer<float> passed_;  // [rows, in] back A
  MatrixRows inner_rows_;
  MatrixRows back_rows_;
  MatrixRows columns_;  // of dy
};

}  // namespace moesaic
