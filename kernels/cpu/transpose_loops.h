#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

/// Where a block of a RowSource begins.
struct BlockStart {
  std::int64_t row;
  std::int64_t column;
};

/// In which order a product takes its sum (docs/numerics.md). With tiles and dot, inputs are
/// rounded to bf16.
enum class ProductOrder { chain, tiles, dot };

/// Narrow columns of NarrowProduct are padded with zeros to a multiple of this.
inline constexpr std::int64_t kNarrowColumns = 8;

/// sums[i, k] += the sum over rows of narrow[row, i] wide[row, first_column + k].
struct NarrowProduct {
  const float* narrow;  // [num_rows, narrow_columns], rounded if the order wants it
  std::int64_t narrow_stride;
  std::int64_t narrow_columns;  // a multiple of kNarrowColumns
  RowSource wide;
  std::int64_t num_rows;
  std::int64_t first_column;  // of wide
  std::int64_t num_columns;
  float* sums;  // [narrow_columns, num_columns in whole vectors of 16]
  std::int64_t sums_stride;
  ProductOrder order;
  const float* zeros;  // [narrow_columns]
};

/// Loops that bring panels and rows into the form of a transposed product: moves, conversions
/// and products that every instruction set does alike. Lines are 64-byte aligned.
struct TransposeLoops {
  /// `lines`: a step of a bf16 panel, 16 columns by 32 k. Eight lines each of two panels whose
  /// depth are the columns: k 0..15 at `low`, k 16..31 at `high`.
  void (*bf16_step)(const std::byte* lines, std::byte* low, std::byte* high) noexcept;
  /// A tile of int8 (64 k) as two steps of bf16.
  void (*widen_int8)(const std::byte* tile, std::byte* steps) noexcept;
  /// 16 lines of 16 floats, the rows of `out` becoming the columns of `lines`. Rows of `out` are
  /// out_stride bytes apart, a multiple of 64.
  void (*f32_lines)(const std::byte* lines, std::byte* out, std::int64_t out_stride) noexcept;
  /// 16 rows from `at` on by 16 columns, as 16 lines of floats; what lies beyond the source is
  /// zero.
  void (*load_block)(const RowSource& source, const BlockStart& at, std::byte* lines) noexcept;
  /// 32 rows by 32 columns, as a step of each of two bf16 panels whose depth are the rows: the
  /// first 16 columns at `low`, the others at `high`, which may be null. What lies beyond the
  /// source is zero.
  void (*bf16_blocks)(const RowSource& source, const BlockStart& at, std::byte* low,
                      std::byte* high) noexcept;
  /// Copies rows of whole lines to where nobody reads them soon: past the caches. `to` and
  /// to_stride (elements) are whole lines too.
  void (*stream_rows)(const MatrixView<const float>& from, float* to,
                      std::int64_t to_stride) noexcept;
  /// out[i] = the row's element i times scales[i], count of them.
  void (*scale_row)(const RowSource& source, std::int64_t row, const float* scales,
                    float* out) noexcept;
  /// A product over rows.
  void (*narrow_product)(const NarrowProduct& product) noexcept;
};

/// Of this instruction set, or the nearest simpler one.
[[nodiscard]] const TransposeLoops& find_transpose_loops(Isa isa) noexcept;

}  // namespace moesaic
