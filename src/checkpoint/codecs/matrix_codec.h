#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/format.h"
#include "kernels/quantized_rows.h"
#include "src/checkpoint/codecs/stored_matrix.h"

namespace moesaic {

/// Rows first, first + step, first + 2 * step, ... of a matrix.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;

  [[nodiscard]] std::int64_t at(std::int64_t index) const noexcept { return first + index * step; }
  /// One past the last row; `first` if there are none.
  [[nodiscard]] std::int64_t end() const noexcept { return count == 0 ? first : at(count - 1) + 1; }
};

using BytesCall = std::function<void(std::span<const std::byte>)>;

/// Scale of a whole nvfp4 matrix. ModelOpt multiplies by it, compressed-tensors divides by it, and
/// the inverse is not the same to the last bit.
struct MatrixScale {
  float value = 1;
  bool divides = false;

  [[nodiscard]] float apply(float factor) const noexcept {
    return divides ? factor / value : factor * value;
  }
};

/// A quantised matrix [rows, cols] in a mapped checkpoint. Its makers (codecs.h) check names,
/// dtypes and shapes; reading checks what only the data can tell.
class MatrixCodec {
 public:
  virtual ~MatrixCodec() = default;

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  /// PackedMatrix::scale.
  [[nodiscard]] float scale() const noexcept { return scale_.apply(1.0F); }
  /// PackedMatrix::order, or empty.
  [[nodiscard]] std::span<const std::int32_t> order() const noexcept { return order_; }

  /// Codes and scales, k in the order of order(). Throws Error{file} naming file, tensor, row and
  /// group for a scale that is no finite number.
  void read_quantized(const RowRange& rows, QuantizedRows& out) const;
  /// What the library that made the checkpoint dequantises to in f32, k in the model's order.
  /// `out` is [rows.count, cols]. Throws as read_quantized does.
  void read_floats(const RowRange& rows, std::span<float> out) const;
  /// Calls for the mapped bytes that reading these rows touches. Tensors that lie across the rows,
  /// with k outermost (GPTQ, AWQ), come once and whole, with the last row.
  virtual void for_each_bytes(const RowRange& rows, const BytesCall& call) const = 0;

 protected:
  /// `scales` is what messages about scales name.
  MatrixCodec(const StoredMatrix& matrix, const Layout& layout, const StoredTensor& scales);

  /// Fills `out`, which has its sizes and zero points of 8: codes with k in the model's order,
  /// scales and zero points of the groups of order().
  virtual void fill(const RowRange& rows, QuantizedRows& out) const = 0;

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  /// k that share a scale in the layout, and how many such groups a row has.
  [[nodiscard]] std::int64_t group() const noexcept { return group_; }
  [[nodiscard]] std::int64_t num_groups() const noexcept { return num_groups_; }
  void set_scale(const MatrixScale& scale) { scale_ = scale; }
  void set_order(std::vector<std::int32_t> order) { order_ = std::move(order); }

 private:
  /// Of a group of `quantized`, with the matrix's scale.
  [[nodiscard]] float group_scale(const QuantizedRows& quantized, std::size_t index) const;
  void check_scales(const RowRange& rows, const QuantizedRows& quantized) const;
  /// From the model's order of k to order(), and back.
  void sort_codes(QuantizedRows& rows) const;
  void unsort_values(std::span<float> row) const;

  Layout layout_;
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t group_;
  std::int64_t num_groups_;
  StoredTensor scales_;
  MatrixScale scale_;
  std::vector<std::int32_t> order_;
};

}  // namespace moesaic
