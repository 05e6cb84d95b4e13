#include "kernels/outer_panels.h"

#include <algorithm>

namespace moesaic {

void pack_row_panels(const TransposeLoops& loops, const RowSource& rows, const PanelRange& panels,
                     const PackedMatrix& matrix, std::byte* out) noexcept {
  const bool is_f32 = matrix.layout.format == Format::f32;
  const std::int64_t bytes = is_f32 ? 2 * kTileBytes : kTileBytes;  // of a step
  const std::int64_t stride = matrix.panel_stride();
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  // Step by step, so that rows are read in long pieces.
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t panel = panels.first; panel < panels.first + panels.count; ++panel) {
      const BlockStart at{step * kStepDepth, panel * kPanelColumns};
      std::byte* const to = out + panel * stride + step * bytes;
      if (is_f32) {
        loops.load_block(rows, at, to);
        loops.load_block(rows, {at.row + 16, at.column}, to + kTileBytes);
      } else {
        loops.bf16_block(rows, at, to);
      }
    }
  }
}

void load_columns(const TransposeLoops& loops, const RowSource& rows, std::int64_t first,
                  float* out, const std::byte** pointers) noexcept {
  const std::int64_t stride = round_up(rows.num_rows, 16);
  for (std::int64_t row = 0; row < rows.num_rows; row += 16) {
    alignas(64) std::byte lines[kTileBytes];
    loops.load_block(rows, {row, first}, lines);
    loops.f32_lines(lines, reinterpret_cast<std::byte*>(out + row), stride * 4);
  }
  for (std::int64_t column = 0; column < 16; ++column) {
    pointers[column] = reinterpret_cast<const std::byte*>(out + column * stride);
  }
}

bool ResultBlock::has_whole_lines() const noexcept {
  return !turned && reinterpret_cast<std::uintptr_t>(result.data()) % 64 == 0 &&
         result.stride() % kPanelColumns == 0 && num_columns % kPanelColumns == 0;
}

void ResultBlock::load(float* values, std::int64_t stride) const {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    float* const to = values + row * stride;
    if (!turned) {
      std::copy_n(start() + row * result.stride(), num_columns, to);
      continue;
    }
    for (std::int64_t column = 0; column < num_columns; ++column) {
      to[column] = result(first_column + column, first_row + row);
    }
  }
}

void ResultBlock::store(const TransposeLoops& loops, const float* values,
                        std::int64_t stride) const {
  if (has_whole_lines()) {
    loops.stream_rows({values, num_rows, num_columns, stride}, start(), result.stride());
    return;
  }
  if (!turned) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(values + row * stride, num_columns, start() + row * result.stride());
    }
    return;
  }
  for (std::int64_t column = 0; column < num_columns; ++column) {
    float* const to = result.row(first_column + column).data() + first_row;
    for (std::int64_t row = 0; row < num_rows; ++row) to[row] = values[row * stride + column];
  }
}

}  // namespace moesaic
