#pragma once

#include <vector>

#include "base/matrix_view.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

/// The rows of matrices as inputs of products. Keeps the pointers of the last one.
class MatrixRows {
 public:
  /// Valid until the next call.
  [[nodiscard]] RowSource of(MatrixView<const float> matrix) {
    rows_.clear();
    for (std::int64_t row = 0; row < matrix.rows(); ++row) {
      rows_.push_back(reinterpret_cast<const std::byte*>(matrix.row(row).data()));
    }
    return {.rows = rows_.data(), .num_rows = matrix.rows(), .depth = matrix.cols()};
  }

  /// Rows of bf16 that lie where those of `matrix` begin. Valid until the next call.
  [[nodiscard]] RowSource of_rounded(MatrixView<const float> matrix) {
    RowSource source = of(matrix);
    source.element = RowSource::Element::bf16;
    return source;
  }

  /// `count` elements of each row of `source` from `first` on. Valid until the next call.
  [[nodiscard]] RowSource columns_of(const RowSource& source, std::int64_t first,
                                     std::int64_t count) {
    rows_.clear();
    for (std::int64_t row = 0; row < source.num_rows; ++row) {
      rows_.push_back(source.rows[row] + first * element_bytes(source.element));
    }
    return {.rows = rows_.data(),
            .num_rows = source.num_rows,
            .depth = count,
            .element = source.element};
  }

 private:
  std::vector<const std::byte*> rows_;
};

}  // namespace moesaic
