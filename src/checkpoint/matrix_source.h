#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/format.h"
#include "kernels/quantized_rows.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/tensor_slice.h"

namespace moesaic {

class MatrixCodec;
struct RowRange;

/// A matrix [rows, cols] in a mapped checkpoint, plain (bf16, f16, f32) or quantised, read row by
/// row. Points into the checkpoint, which must outlive it. Cheap to copy.
class MatrixSource {
 public:
  MatrixSource() = default;
  /// Finds out from the tensors that are there how the matrix is stored (src/checkpoint/codecs).
  /// Throws Error{file} naming file, tensor, what was expected and what was found, if a tensor is
  /// missing, has another shape, or is of a dtype that is not read.
  MatrixSource(const Checkpoint& checkpoint, const TensorSlice& slice);
  /// A whole tensor [rows, cols] of bf16, f16 or f32; throws Error{file} for another dtype.
  explicit MatrixSource(const TensorView& plain);

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }

  /// The packed layout that keeps exactly what the file has: Format::bf16, Format::f32 (for f16
  /// too), or the quantised one.
  [[nodiscard]] Layout layout() const noexcept;
  [[nodiscard]] bool is_quantized() const noexcept { return codec_ != nullptr; }
  /// PackedMatrix::scale of a quantised matrix, else 1.
  [[nodiscard]] float scale() const noexcept;
  /// PackedMatrix::order of a quantised matrix, else empty.
  [[nodiscard]] std::span<const std::int32_t> order() const noexcept;

  /// Rows [first, first + count) as floats, exact, k in the model's order; `out` has count * cols()
  /// elements, row-major. Quantised ones are what the library that made the checkpoint dequantises
  /// to. All readers throw Error{file} naming file, tensor and row for a scale that is no number.
  void read_rows(std::int64_t first, std::int64_t count, std::span<float> out) const;
  /// The same as bf16, rounded to nearest even where the file has more precision.
  void read_rows(std::int64_t first, std::int64_t count, std::span<BFloat16> out) const;
  /// The codes and scales of a quantised matrix, k in the packed order.
  void read_quantized(std::int64_t first, std::int64_t count, QuantizedRows& out) const;

  /// Calls for the mapped bytes that reading these rows touches (some may belong to other rows
  /// too). Tensors that lie across the rows, k outermost (GPTQ, AWQ, transposed ones), come once
  /// and whole, with the last row.
  void for_each_bytes(std::int64_t first, std::int64_t count,
                      const std::function<void(std::span<const std::byte>)>& call) const;

 private:
  void take_plain(const TensorView& tensor, const TensorSlice& slice);
  [[nodiscard]] bool lies_across() const noexcept { return col_stride_ != 1; }
  [[nodiscard]] std::span<const std::byte> row_bytes(std::int64_t first, std::int64_t count) const;
  template <typename Element>
  [[nodiscard]] std::vector<std::byte> gather(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] std::vector<std::byte> gather_rows(std::int64_t first, std::int64_t count) const;
  template <typename Use>
  void use_rows(std::int64_t first, std::int64_t count, const Use& use) const;
  [[nodiscard]] RowRange codec_rows(std::int64_t first, std::int64_t count) const;

  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  // Plain rows, or a codec.
  DType dtype_ = DType::bf16;
  std::span<const std::byte> bytes_;  // from the first element on
  std::int64_t row_stride_ = 0;       // elements
  std::int64_t col_stride_ = 1;       // elements; not 1: the matrix lies across
  std::shared_ptr<const MatrixCodec> codec_;
  std::int64_t first_row_ = 0;  // of the codec's matrix
  std::int64_t row_step_ = 1;
  float offset_ = 0;  // of TensorSlice
};

}  // namespace moesaic
