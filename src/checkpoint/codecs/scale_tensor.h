#pragma once

#include <cstdint>

#include "src/checkpoint/codecs/stored_matrix.h"

namespace moesaic {

/// Scales [rows, cols] of any dtype that they come in: F32, BF16, F16; U8 and F8_E8M0 hold
/// exponents, 2^(code - 127).
class ScaleTensor {
 public:
  /// Takes the tensor's elements as [rows, cols], whatever its shape. Throws Error{file} for
  /// another dtype or number of elements.
  ScaleTensor(const StoredTensor& tensor, std::int64_t rows, std::int64_t cols);

  /// Not checked: may be NaN.
  [[nodiscard]] float at(std::int64_t row, std::int64_t col) const noexcept {
    return load(row * cols_ + col);
  }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  [[nodiscard]] const StoredTensor& tensor() const noexcept { return tensor_; }
  [[nodiscard]] std::span<const std::byte> row_bytes(std::int64_t first, std::int64_t end) const;

 private:
  [[nodiscard]] float load(std::int64_t index) const noexcept;

  StoredTensor tensor_;
  std::int64_t rows_;
  std::int64_t cols_;
};

/// The scales beside `weight`: weight_scale_inv, weight_scale or scale. Throws Error{file} if there
/// are none.
[[nodiscard]] StoredTensor find_scale(const StoredMatrix& matrix, const StoredTensor& weight);

/// Whether a dtype is one of floating-point scales (F32, BF16, F16) or of exponents (U8, F8_E8M0).
[[nodiscard]] bool is_float_scale(DType dtype) noexcept;
[[nodiscard]] bool is_exponent_scale(DType dtype) noexcept;

}  // namespace moesaic
