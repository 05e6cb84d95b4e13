#pragma once

#include <memory>
#include <span>

#include "base/matrix_view.h"
#include "kernels/grouped_gemm.h"

namespace moesaic {

/// What the products of a call have in common: rows of y [rows, n] and of x [rows, k].
struct OuterInput {
  RowSource y;
  RowSource x;
  /// bf16: elements are rounded to it, sums take the order of bf16 products; f32: one chain of
  /// fused multiply-adds. No other.
  Format format = Format::bf16;
};

/// Rows [first_row, first_row + num_rows) of the inputs, and where their product goes.
struct OuterGroup {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  MatrixView<float> result;  // [n, k]
  bool accumulate = false;   // sums go on from what is there
};

/// Products summed over rows, result[n, k] = sum over the rows of y[row, n] x[row, k]: what the
/// gradient of a weight matrix is. Sums run over the rows, counted from the first of a group, in
/// the order that GroupedGemm has over k. Keeps its scratch memory between calls; one object a
/// rank, used by one caller at a time.
class OuterGemm {
 public:
  explicit OuterGemm(const Compute& compute);
  ~OuterGemm();

  /// Groups may share rows, but no results. A group without rows has a result of zeros, or what was
  /// there (`accumulate`). Throws Error{internal} for groups that do not fit the input.
  void run(const OuterInput& input, std::span<const OuterGroup> groups);

  /// What products of this format pack at a time, at most: of groups that have `rows` rows together
  /// and share none.
  struct Size {
    std::int64_t rows = 0;
    std::int64_t y_columns = 0;
    std::int64_t x_columns = 0;
  };
  [[nodiscard]] static std::int64_t packed_bytes(const GemmKernel& kernel, const Size& size,
                                                 int threads);
  /// Memory of packed rows: that of some pieces of the inputs, however many rows there were.
  [[nodiscard]] std::int64_t scratch_bytes() const noexcept;

 private:
  class Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace moesaic
