#pragma once

#include <cstdint>

#include "base/rounding.h"
#include "kernels/attention_gradient.h"
#include "kernels/cpu/attention_gradient_layout.h"
#include "kernels/cpu/attention_product.h"
#include "kernels/cpu/transpose_loops.h"
#include "kernels/cpu/vector_math.h"

// Products of gradients in f32 by strips of 16 rows, and the forms that rows take for them.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Where a(row, k) of a product stands: panels are [depth][16 rows]. Weights [row][keys of a block]
/// are taken by rows as WeightLayout says, or by keys.
struct PanelLayout {
  static constexpr std::int64_t index(int row, std::int64_t k) { return k * kGradientStrip + row; }
};
struct KeyLayout {
  static constexpr std::int64_t index(int key, std::int64_t k) { return k * kKeysPerBlock + key; }
};

/// A product of a strip of 16 rows, in groups of nearly equal size.
template <typename Layout>
inline void multiply_strip(const Product<float>& product, std::int64_t columns) {
  constexpr std::int64_t kGroups = divide_up(kGradientStrip, kTileRows);
  for (std::int64_t group = 0; group < kGroups; ++group) {
    const std::int64_t first = group * kGradientStrip / kGroups;
    const std::int64_t end = (group + 1) * kGradientStrip / kGroups;
    Product<float> part = product;
    part.a += Layout::index(static_cast<int>(first), 0);
    part.c += first * product.c_stride;
    multiply<Layout>(part, static_cast<int>(end - first), columns);
  }
}

inline void clear(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(values + i, broadcast(0));
}

/// Some rows on their way to scratch, filled up with zeros.
struct RowBlock {
  AttentionGradientArgs::Rows<const float> rows;
  std::int64_t first;
  std::int64_t count;   // rows that there are
  std::int64_t padded;  // rows that are written, a multiple of 16
  std::int64_t dim;
};
/// [padded, dim in whole vectors]
inline void copy_rows(const RowBlock& block, float* out) {
  const std::int64_t width = round_up(block.dim, kLanes);
  clear(out, block.padded * width);
  for (std::int64_t row = 0; row < block.count; ++row, out += width) {
    const float* from = block.rows.row(block.first + row);
    for_each_vector(block.dim, [&](std::int64_t d, auto part) {
      const Lanes value = load(from + d, part);
      store(out + d, value, part);
    });
  }
}
/// What copy_rows wrote, as panels [padded / 16][dim][16].
inline void turn_rows(const RowBlock& block, const float* rows, float* panels) {
  const std::int64_t width = round_up(block.dim, kLanes);
  const TransposeLoops& loops = find_transpose_loops(kLanesIsa);
  alignas(64) float lines[kGradientStrip * kLanes];
  for (std::int64_t first = 0; first < block.padded; first += kGradientStrip) {
    for (std::int64_t d = 0; d < block.dim; d += kLanes) {  // what is too much is overwritten
      for (std::int64_t row = 0; row < kGradientStrip; ++row) {
        store(lines + row * kLanes, load(rows + (first + row) * width + d));
      }
      loops.f32_lines(reinterpret_cast<const std::byte*>(lines),
                      reinterpret_cast<std::byte*>(panels + first * block.dim + d * kLanes), 64);
    }
  }
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
