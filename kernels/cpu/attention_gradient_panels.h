#pragma once

#include <cstdint>

#include "kernels/attention_kernel.h"
#include "kernels/cpu/attention_gradient_layout.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/transpose_loops.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/formats/bf16.h"

// The inputs of the gradient of attention over a bf16 cache, as rows and panels of its products
// (attention_gradient_bf16.h): 32 rows at a time are rounded once and then brought into every form
// that some product takes them in.
//
// `Products` says how an instruction set packs rows:
//
//   row_writer(rows, steps, row)   has put(k, low, high): 32 elements of a row of 32 * steps,
//       rounded; `rows` are of a matrix with whole blocks of 16 rows

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Where panels with depth 64 (keys of a block, rows of a block) begin.
inline std::byte* deep_panel(std::byte* panels, std::int64_t panel) {
  return panels + panel * kGradientDepthSteps * kTileBytes;
}

/// A call, and where its scratch lies.
struct Bf16Gradient {
  explicit Bf16Gradient(const AttentionGradientArgs& call)
      : args(call),
        at(call.num_rows, call.head_dim, call.value_dim),
        loops(find_transpose_loops(kLanesIsa)) {}

  [[nodiscard]] std::byte* bytes(std::int64_t offset) const { return args.scratch + offset; }
  [[nodiscard]] float* floats(std::int64_t offset) const {
    return reinterpret_cast<float*>(bytes(offset));
  }

  const AttentionGradientArgs& args;
  Bf16GradientScratch at;
  const TransposeLoops& loops;
};

/// 32 rows of a matrix as floats that hold bf16 values: [32, width], filled up with zeros.
struct RowChunk {
  float* values;
  std::int64_t width;  // a multiple of 32
};

/// Asks for rows [first, first + 32), which lie too far apart for the CPU's own prefetching.
inline void ask_for_rows(const Bf16Gradient& pass, AttentionGradientArgs::Rows<const float> rows,
                         std::int64_t first, std::int64_t dim) {
  const std::int64_t left = pass.args.num_rows - first;
  for (std::int64_t row = 0; row < (left < kStepDepth ? left : kStepDepth); ++row) {
    prefetch_lines(reinterpret_cast<const std::byte*>(rows.row(first + row)), (dim + 15) / 16);
  }
}

/// Rows [first, first + 32) as far as they exist. A NaN that came from arithmetic stays NaN.
inline RowChunk load_chunk(const Bf16Gradient& pass, AttentionGradientArgs::Rows<const float> rows,
                           std::int64_t first, std::int64_t dim) {
  const RowChunk chunk{pass.floats(pass.at.chunk), round_up(dim, kStepDepth)};
  for (std::int64_t i = 0; i < kStepDepth * chunk.width; i += kLanes) {
    store(chunk.values + i, broadcast(0));
  }
  ask_for_rows(pass, rows, first + kStepDepth, dim);
  const std::int64_t left = pass.args.num_rows - first;
  for (std::int64_t row = 0; row < (left < kStepDepth ? left : kStepDepth); ++row) {
    for_each_vector(dim, [&](std::int64_t d, auto part) {
      store(chunk.values + row * chunk.width + d,
            round_to_bf16(load(rows.row(first + row) + d, part)), part);
    });
  }
  return chunk;
}

/// 16 rows from `row` on and 16 columns from `column` on, transposed: [16 columns][16 rows].
inline void turn_block(const Bf16Gradient& pass, const RowChunk& chunk, std::int64_t row,
                       std::int64_t column, float* out) {
  alignas(64) float lines[16 * kLanes];
  for (std::int64_t i = 0; i < 16; ++i) {
    store(lines + i * kLanes, load(chunk.values + (row + i) * chunk.width + column));
  }
  pass.loops.f32_lines(reinterpret_cast<const std::byte*>(lines), reinterpret_cast<std::byte*>(out),
                       64);
}

/// Rows of the chunk as rows of a product.
template <typename Products>
inline void put_rows(const RowChunk& chunk, std::int64_t first, std::byte* rows) {
  for (std::int64_t row = 0; row < kStepDepth; ++row) {
    const auto writer = Products::row_writer(rows, chunk.width / kStepDepth, first + row);
    const float* const from = chunk.values + row * chunk.width;
    for (std::int64_t d = 0; d < chunk.width; d += kStepDepth) {
      writer.put(d, load(from + d), load(from + d + kLanes));
    }
  }
}
/// Columns of the chunk as rows of a product, `steps` long, of which they are step `step`.
template <typename Products>
inline void put_columns(const Bf16Gradient& pass, const RowChunk& chunk, std::int64_t step,
                        std::int64_t steps, std::byte* rows) {
  alignas(64) float low[16 * kLanes];
  alignas(64) float high[16 * kLanes];
  for (std::int64_t column = 0; column < chunk.width; column += 16) {
    turn_block(pass, chunk, 0, column, low);
    turn_block(pass, chunk, 16, column, high);
    for (std::int64_t i = 0; i < 16; ++i) {
      Products::row_writer(rows, steps, column + i)
          .put(step * kStepDepth, load(low + i * kLanes), load(high + i * kLanes));
    }
  }
}
/// Rows of the chunk as the columns of two panels, one after the other; their depth is its width.
inline void put_panels(const Bf16Gradient& pass, const RowChunk& chunk, std::byte* panels) {
  alignas(64) float turned[16 * kLanes];
  for (std::int64_t row = 0; row < kStepDepth; row += kPanelColumns) {
    for (std::int64_t column = 0; column < chunk.width; column += 16) {
      turn_block(pass, chunk, row, column, turned);
      std::byte* const lines = panels + (row * chunk.width + column * kPanelColumns) * 2;
      for (std::int64_t i = 0; i < 16; i += 2) {
        store_pairs(reinterpret_cast<BFloat16*>(lines + i / 2 * 64), load(turned + i * kLanes),
                    load(turned + (i + 1) * kLanes));
      }
    }
  }
}
/// Rows of the chunk as step `step` of the depth of panels, the columns of which are its columns.
inline void put_depth(const RowChunk& chunk, std::int64_t step, std::byte* panels) {
  for (std::int64_t column = 0; column < chunk.width; column += kPanelColumns) {
    std::byte* const lines = deep_panel(panels, column / kPanelColumns) + step * kTileBytes;
    for (std::int64_t row = 0; row < kStepDepth; row += 2) {
      const float* const from = chunk.values + row * chunk.width + column;
      store_pairs(reinterpret_cast<BFloat16*>(lines + row / 2 * 64), load(from),
                  load(from + chunk.width));
    }
  }
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
