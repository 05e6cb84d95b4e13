#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/packed_matrix.h"
#include "kernels/quantized_rows.h"

namespace moesaic {

/// k of one row that share a scale: `layout.group`, 16 or 32, or the whole row (`depth`).
[[nodiscard]] std::int64_t scale_group(const Layout& layout, std::int64_t depth) noexcept;

/// Whether scales are codes too (QuantizedRows::scale_codes).
[[nodiscard]] bool has_scale_codes(Format format) noexcept;

/// What a code counts for before any scale; `zero` is the zero point of int4_group's. Formats
/// without codes throw Error{internal}.
[[nodiscard]] float code_value(Format format, std::uint8_t code, std::uint8_t zero = 0);

/// What a quantiser has to know of the whole matrix before it can quantise a row: the largest
/// magnitude (nvfp4), or that of every block (fp8_block). Other formats need nothing.
class MatrixScales {
 public:
  MatrixScales(const Layout& layout, std::int64_t rows, std::int64_t depth);

  [[nodiscard]] static bool needed(Format format) noexcept {
    return format == Format::nvfp4 || format == Format::fp8_block;
  }
  /// Takes in rows [first_row, ...) of the matrix, [count, depth] floats.
  void add_rows(std::int64_t first_row, std::span<const float> values);
  /// PackedMatrix::scale of the matrix.
  [[nodiscard]] float matrix_scale() const noexcept;
  /// Of the block that (row, k) lies in.
  [[nodiscard]] float block_amax(std::int64_t row, std::int64_t k) const noexcept;

 private:
  [[nodiscard]] std::size_t block_index(std::int64_t row, std::int64_t k) const noexcept;

  Layout layout_;
  std::int64_t depth_;
  std::int64_t blocks_per_row_;
  std::vector<float> amax_;  // [row blocks, blocks_per_row_], or one
};

/// Rows of floats to quantise.
struct FloatRows {
  std::span<const float> values;  // [num_rows, depth]
  std::int64_t first_row = 0;     // in the matrix
  std::int64_t num_rows = 0;
  std::int64_t depth = 0;
};

/// Rounds rows to the codes of `layout` (not f32 or bf16). `scales` is needed where
/// MatrixScales::needed() says so. Values that are not finite throw Error{file}.
void quantize_rows(const Layout& layout, const FloatRows& rows, const MatrixScales* scales,
                   QuantizedRows& out);

/// The values that codes stand for, times `matrix_scale`: each one f32 product of exact factors.
/// `out` [num_rows, depth].
void dequantize_rows(const Layout& layout, const QuantizedRows& rows, float matrix_scale,
                     std::span<float> out);

/// Packs up to 16 rows into one panel of panel_bytes(layout, rows.depth) bytes. Throws Error{file}
/// that names row and k for a value that no kernel could multiply by: an e4m3 NaN, an e8m0 NaN, or
/// a product of code and scale beyond bf16.
void pack_panel(const Layout& layout, const QuantizedRows& rows, std::byte* panel);

/// What the elements of one step of a packed panel count for in a product, decoded one by one: the
/// truth that the kernels of every instruction set are compared with. Formats whose elements become
/// bf16: `out` is one step of a bf16 panel (kernels/formats/bf16.h), and a product's column c is
/// multiplied by column_scale(matrix, panel, c) at the end.
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out);
/// The same for int8 and int4: one tile of int8, [16][16 columns][4 k].
void decode_int_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step,
                     std::int8_t* out);

/// What a product's column is multiplied by after its sum: PackedMatrix::scale times the row's own
/// scale where the format has one.
[[nodiscard]] float column_scale(const PackedMatrix& matrix, std::int64_t column) noexcept;

}  // namespace moesaic
