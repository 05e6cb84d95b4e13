#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/matrix_view.h"
#include "kernels/gemm_kernel.h"
#include "kernels/grouped_gemm.h"

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

  /// Rows of `depth` elements one behind the other, from `first` on. Valid until the next call.
  [[nodiscard]] RowSource packed(const std::byte* first, std::int64_t num_rows, std::int64_t depth,
                                 RowSource::Element element) {
    rows_.clear();
    for (std::int64_t row = 0; row < num_rows; ++row) {
      rows_.push_back(first + row * depth * element_bytes(element));
    }
    return {.rows = rows_.data(), .num_rows = num_rows, .depth = depth, .element = element};
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

/// A matrix as what a product writes.
[[nodiscard]] inline GemmOutput output_of(const MatrixView<float>& matrix) {
  return {.data = reinterpret_cast<std::byte*>(matrix.data()), .stride_bytes = matrix.stride() * 4};
}

}  // namespace moesaic
