#pragma once

#include <cassert>
#include <cstdint>
#include <span>
#include <type_traits>

namespace moesaic {

/// A view of rows x cols elements, row-major, rows `stride` elements apart. Owns nothing.
template <typename T>
class MatrixView {
 public:
  MatrixView() = default;
  MatrixView(T* data, std::int64_t rows, std::int64_t cols) : MatrixView(data, rows, cols, cols) {}
  MatrixView(T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride)
      : data_(data), rows_(rows), cols_(cols), stride_(stride) {
    assert(rows >= 0 && cols >= 0 && stride >= cols);
  }
  /// A view of mutable elements serves where constant ones are wanted.
  template <typename U>
  requires(std::is_const_v<T>&& std::is_same_v<std::remove_const_t<T>, U>)
      MatrixView(const MatrixView<U>& other)  // NOLINT(google-explicit-constructor)
      : MatrixView(other.data(), other.rows(), other.cols(), other.stride()) {}

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  [[nodiscard]] std::int64_t stride() const noexcept { return stride_; }

  [[nodiscard]] std::span<T> row(std::int64_t r) const {
    assert(r >= 0 && r < rows_);
    return {data_ + r * stride_, static_cast<std::size_t>(cols_)};
  }
  [[nodiscard]] T& operator()(std::int64_t r, std::int64_t c) const {
    assert(r >= 0 && r < rows_ && c >= 0 && c < cols_);
    return data_[r * stride_ + c];
  }
  /// Rows [first, first + count).
  [[nodiscard]] MatrixView row_range(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows_);
    return {data_ + first * stride_, count, cols_, stride_};
  }

 private:
  T* data_ = nullptr;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t stride_ = 0;
};

}  // namespace moesaic
