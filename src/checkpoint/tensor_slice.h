#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// Where a logical matrix [rows, cols] lies on disk: rows of one tensor, whose leading dimensions
/// count as one. Expert e of a fused [E, 2I, H] tensor has its gate at row e * 2I. A vector of n
/// elements is a matrix [1, n]. Where the matrix is quantised, `tensor` and `shape` are what they
/// would be if it were not, and companion_names.h has the names that are there.
struct TensorSlice {
  std::string tensor;
  std::vector<std::int64_t> shape;  ///< that the whole tensor must have
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_step = 1;  ///< 2 where gate and up take turns (gpt-oss)
  /// The matrix lies across, as x W of gpt-oss takes it: from tensor row `first_row` on its columns
  /// are rows of the tensor, and its row r is column first_column + r * row_step of these. Such
  /// ones are plain.
  bool is_transposed = false;
  std::int64_t first_column = 0;
  /// It is in blocks [experts, out, in], of a model whose plain matrices lie across.
  bool is_across_if_plain = false;
  /// Added to each element that is read as a float: norms may store what is missing to 1.
  float offset = 0;
};

/// Whether a checkpoint holds a tensor of this name.
using TensorExists = std::function<bool(std::string_view name)>;

}  // namespace moesaic
