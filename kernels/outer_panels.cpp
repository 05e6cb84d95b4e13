#include "kernels/outer_panels.h"

#include <algorithm>

#include "kernels/cpu/prefetch.h"
#include "kernels/streamed_results.h"

namespace moesaic {
namespace {

/// Asks for some columns of `count` rows, which the CPU's own prefetching does not see coming.
void prefetch_block(const RowSource& source, const BlockStart& at, std::int64_t count,
                    std::int64_t columns) {
  const std::int64_t size = element_bytes(source.element);
  const std::int64_t end = std::min(source.num_rows, at.row + count);
  const std::int64_t lines = (std::min(columns, source.depth - at.column) * size + 63) / 64;
  if (lines <= 0) return;
  for (std::int64_t row = at.row; row < end; ++row) {
    prefetch_lines(source.rows[row] + at.column * size, lines);
  }
}

/// As TransposeLoops::bf16_blocks(), of f32 panels.
void load_blocks(const TransposeLoops& loops, const RowSource& rows, const BlockStart& at,
                 std::byte* low, std::byte* high) {
  for (const std::int64_t half : {0, 16}) {
    const std::int64_t row = at.row + half;
    loops.load_block(rows, {row, at.column}, low + half * 64);
    if (high != nullptr) loops.load_block(rows, {row, at.column + kPanelColumns}, high + half * 64);
  }
}

/// to = from^T, in blocks of 16 by 16.
void transpose_floats(const TransposeLoops& loops, const MatrixView<const float>& from,
                      const MatrixView<float>& to) {
  alignas(64) float lines[256] = {};
  alignas(64) float turned[256];
  for (std::int64_t row = 0; row < from.rows(); row += 16) {
    const std::int64_t rows = std::min<std::int64_t>(16, from.rows() - row);
    for (std::int64_t column = 0; column < from.cols(); column += 16) {
      const std::int64_t columns = std::min<std::int64_t>(16, from.cols() - column);
      for (std::int64_t i = 0; i < rows; ++i) {
        std::copy_n(from.data() + (row + i) * from.stride() + column, columns, lines + 16 * i);
      }
      loops.f32_lines(reinterpret_cast<const std::byte*>(lines),
                      reinterpret_cast<std::byte*>(turned), 64);
      for (std::int64_t i = 0; i < columns; ++i) {
        std::copy_n(turned + 16 * i, rows, to.data() + (column + i) * to.stride() + row);
      }
    }
  }
}

}  // namespace

void pack_row_panels(const TransposeLoops& loops, const RowSource& rows, const StepSpan& steps,
                     const PackedMatrix& matrix, std::byte* out) noexcept {
  constexpr std::int64_t kAhead = 4;  // pairs of panels
  constexpr std::int64_t kPair = 2 * kPanelColumns;
  const bool is_f32 = matrix.layout.format == Format::f32;
  const std::int64_t bytes = is_f32 ? 2 * kTileBytes : kTileBytes;  // of a step
  const std::int64_t stride = matrix.panel_stride();
  const std::int64_t panels = matrix.num_panels();
  const std::int64_t pairs = (panels + 1) / 2;
  for (std::int64_t step = steps.first; step < steps.first + steps.count; ++step) {
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const std::int64_t ahead = pair + kAhead;  // behind the last one the next rows begin
      prefetch_block(rows, {(step + ahead / pairs) * kStepDepth, ahead % pairs * kPair}, kStepDepth,
                     kPair);
      const BlockStart at{step * kStepDepth, pair * kPair};
      std::byte* const low = out + 2 * pair * stride + step * bytes;
      std::byte* const high = 2 * pair + 1 < panels ? low + stride : nullptr;
      is_f32 ? load_blocks(loops, rows, at, low, high) : loops.bf16_blocks(rows, at, low, high);
    }
  }
}

void load_columns(const TransposeLoops& loops, const RowSource& rows, std::int64_t first,
                  float* out, const std::byte** pointers) noexcept {
  const std::int64_t stride = round_up(rows.num_rows, 16);
  for (std::int64_t row = 0; row < rows.num_rows; row += 16) {
    alignas(64) std::byte lines[kTileBytes];
    prefetch_block(rows, {row + 32, first}, 16, 16);
    loops.load_block(rows, {row, first}, lines);
    loops.f32_lines(lines, reinterpret_cast<std::byte*>(out + row), stride * 4);
  }
  for (std::int64_t column = 0; column < 16; ++column) {
    pointers[column] = reinterpret_cast<const std::byte*>(out + column * stride);
  }
}

MatrixView<float> ResultBlock::turned_part() const {
  return {result.data() + first_column * result.stride() + first_row, num_columns, num_rows,
          result.stride()};
}

void ResultBlock::load(const TransposeLoops& loops, float* values, std::int64_t stride) const {
  if (turned) {
    transpose_floats(loops, turned_part(), {values, num_rows, num_columns, stride});
    return;
  }
  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::copy_n(start() + row * result.stride(), num_columns, values + row * stride);
  }
}

void ResultBlock::store(const TransposeLoops& loops, const float* values,
                        std::int64_t stride) const {
  if (turned) {
    transpose_floats(loops, {values, num_rows, num_columns, stride}, turned_part());
  } else if (are_whole_lines(start(), result.stride(), num_columns)) {
    loops.stream_rows({values, num_rows, num_columns, stride}, start(), result.stride());
  } else {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(values + row * stride, num_columns, start() + row * result.stride());
    }
  }
}

}  // namespace moesaic
