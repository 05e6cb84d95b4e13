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

/// Columns [first, first + count).
template <typename T>
[[nodiscard]] MatrixView<T> columns_of(const MatrixView<T>& matrix, std::int64_t first,
                                       std::int64_t count) {
  T* const data = matrix.rows() > 0 ? matrix.data() + first : matrix.data();  // without rows: null
  return {data, matrix.rows(), count, matrix.stride()};
}
/// The first `count` columns.
template <typename T>
[[nodiscard]] MatrixView<T> first_columns(const MatrixView<T>& matrix, std::int64_t count) {
  return columns_of(matrix, 0, count);
}

/// What an adapter adds to a product: inner rows [rows, rank] times B. If `projects`, the product
/// makes these rows itself.
[[nodiscard]] LowRank forward_terms(const Adapter& adapter, const MatrixView<float>& inner,
                                    bool projects);
/// The same of a transposed product: rows of scale dy B times A.
[[nodiscard]] LowRank backward_terms(const Adapter& adapter, const MatrixView<float>& back,
                                     bool projects);
/// Whether what passes through adapters goes along with the product dy W: not where the matrix has
/// its inputs in an order of its own, nor with dropout.
[[nodiscard]] bool goes_along(const PackedMatrix& matrix, const Dropout& dropout) noexcept;

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
  /// to `gradients`. Of a composite: those of its parts; not with dropout.
  void add_gradients(const AdapterGradientInput& input, std::span<const AdapterRows> groups,
                     AdapterGradients& gradients);

  /// Shared by all that passes gradients back on this rank.
  [[nodiscard]] TransposedGemm& transposed() noexcept { return transposed_; }

 private:
  using Alike = std::span<const AdapterRows>;  // of one rank, for the same columns

  void for_each_alike(std::span<const AdapterRows> groups, const std::function<void(Alike)>& call);
  [[nodiscard]] std::span<const GemmGroup> products(Alike groups, Factor factor,
                                                    MatrixView<const float> addend = {});
  void add_b(const AdapterGradientInput& input, Alike groups, AdapterGradients& gradients);
  template <typename Call>
  void for_each_mask(Alike groups, const Dropout& dropout, const Call& call);
  [[nodiscard]] RowSource left_of(const RowSource& x, Alike groups, const Dropout& dropout);
  void add_factor(const OuterInput& input, Alike groups, Factor factor,
                  AdapterGradients& gradients);
  void add_results(std::size_t first, std::size_t last, Factor factor,
                   AdapterGradients& gradients) const;

  /// A gradient of one sample.
  struct Part {
    const Adapter* adapter;
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
  Buffer<float> results_;  // of OuterGemm
  // With dropout:
  std::vector<std::pair<std::int64_t, const Adapter*>> masked_;  // rows of a call
  Buffer<std::byte> left_;                                       // [rows, in] of x
  MatrixRows left_rows_;
  Buffer<float> passed_;  // [rows, in] back A
  MatrixRows inner_rows_;
  MatrixRows back_rows_;
  MatrixRows columns_;  // of dy
};

}  // namespace moesaic
