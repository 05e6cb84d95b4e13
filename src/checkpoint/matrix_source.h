#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/dtype.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/tensor_names.h"

namespace moesaic {

/// A matrix [rows, cols] of bf16, f16 or f32 in a mapped checkpoint, read row by row. Points into
/// the checkpoint, which must outlive it.
class MatrixSource {
 public:
  MatrixSource() = default;
  /// Throws Error{file} naming file, tensor, what was expected and what was found, if the tensor is
  /// missing, has another shape, or is of a dtype that is not read.
  MatrixSource(const Checkpoint& checkpoint, const TensorSlice& slice);

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  /// The rows as they lie in the file, one after the other, at any alignment.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// Exact. `out` has cols() elements.
  void copy_row_as_float(std::int64_t row, std::span<float> out) const;
  /// Rounds to nearest even where the file has more precision. `out` has cols() elements.
  void copy_row_as_bf16(std::int64_t row, std::span<BFloat16> out) const;
  /// Rows [first, first + count) as floats, exact; `out` has count * cols() elements, row-major.
  void read_rows(std::int64_t first, std::int64_t count, std::span<float> out) const;
  /// The same as bf16.
  void read_rows(std::int64_t first, std::int64_t count, std::span<BFloat16> out) const;

 private:
  [[nodiscard]] std::span<const std::byte> row_bytes(std::int64_t first, std::int64_t count) const;

  std::span<const std::byte> bytes_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  DType dtype_ = DType::bf16;
};

}  // namespace moesaic
