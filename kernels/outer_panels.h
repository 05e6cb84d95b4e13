#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "kernels/cpu/transpose_loops.h"
#include "kernels/packed_matrix.h"

// What products over rows pack, and where their results go.

namespace moesaic {

/// Some steps of 32 rows.
struct StepSpan {
  std::int64_t first;
  std::int64_t count;
};

/// Packs steps of rows into all panels of a matrix whose depth are the rows: bf16 (rounded) or f32,
/// as matrix.layout says. `out` is the first panel of the matrix. Rows are read from end to end: a
/// few columns of each at a time would meet a page for every row again and again.
void pack_row_panels(const TransposeLoops& loops, const RowSource& rows, const StepSpan& steps,
                     const PackedMatrix& matrix, std::byte* out) noexcept;

/// Columns [first, first + 16) as rows of floats [16, rows.num_rows]; `out` has room for whole
/// blocks of 16. `pointers` [16] are where each begins.
void load_columns(const TransposeLoops& loops, const RowSource& rows, std::int64_t first,
                  float* out, const std::byte** pointers) noexcept;

/// Rows and columns of a product within a result, which may be the transposed product.
struct ResultBlock {
  MatrixView<float> result;
  bool turned;
  std::int64_t first_row;  // of the product
  std::int64_t first_column;
  std::int64_t num_rows;
  std::int64_t num_columns;

  /// The block to or from `values` [num_rows, num_columns], rows `stride` elements apart.
  void load(const TransposeLoops& loops, float* values, std::int64_t stride) const;
  void store(const TransposeLoops& loops, const float* values, std::int64_t stride) const;

 private:
  [[nodiscard]] float* start() const {
    return result.data() + first_row * result.stride() + first_column;
  }
  /// The block as the result has it, which is the transposed product.
  [[nodiscard]] MatrixView<float> turned_part() const;
};

}  // namespace moesaic
