#pragma once

#include <cstdint>

#include "kernels/attention_blocks.h"
#include "kernels/cpu/target_region.h"
#include "kernels/cpu/vector_math.h"

// The two products of attention over the 16 lanes of an instruction set.
//
// Both products of attention are one kernel, c[rows, columns] += a[rows, depth] b[depth, columns],
// with columns across lanes and depth in ascending order: scores have keys as columns and head
// elements as depth, sums of values have head elements as columns and keys as depth. Tiling changes
// no bits, since each element of c is one chain of fused multiply-adds.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

template <typename Element>
struct Product {
  const float* a;
  const Element* b;
  std::int64_t depth_stride;   // of b, elements
  std::int64_t vector_stride;  // of b, elements from 16 columns to the next 16
  std::int64_t depth;
  std::int64_t prefetch_bytes;  // how far from each load of b another place is asked for
  float* c;
  std::int64_t c_stride;  // elements from row to row; columns are consecutive
};

/// Where a(row, k) stands: queries are [depth][kTileRows], weights of keys [row][kKeysPerBlock].
struct QueryLayout {
  static constexpr std::int64_t index(int row, std::int64_t k) { return k * kTileRows + row; }
};
struct WeightLayout {
  static constexpr std::int64_t index(int row, std::int64_t k) { return row * kKeysPerBlock + k; }
};

template <typename Layout, int kRows, int kVectors, typename Part, typename Element>
inline void multiply_tile(const Product<Element>& product, Part part) {
  Lanes sums[kRows][kVectors];
  MOESAIC_UNROLL
  for (int row = 0; row < kRows; ++row) {
    MOESAIC_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] = load(product.c + row * product.c_stride + v * kLanes);
    }
  }
  const float* a = product.a;
  const Element* b = product.b;
  const std::int64_t depth_stride = product.depth_stride;
  const std::int64_t vector_stride = product.vector_stride;
  for (std::int64_t k = 0; k < product.depth; ++k) {
    Lanes columns[kVectors];
    MOESAIC_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      columns[v] = load(b + v * vector_stride, part);
      prefetch(reinterpret_cast<const std::byte*>(b + v * vector_stride) + product.prefetch_bytes);
    }
    MOESAIC_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const Lanes factor = broadcast(a[Layout::index(row, 0)]);
      MOESAIC_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[row][v] = fma(factor, columns[v], sums[row][v]);
    }
    a += Layout::index(0, 1);
    b += depth_stride;
  }
  MOESAIC_UNROLL
  for (int row = 0; row < kRows; ++row) {
    MOESAIC_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      store(product.c + row * product.c_stride + v * kLanes, sums[row][v]);
    }
  }
}

/// Multiplies as many tiles of kVectors columns as fit, then narrower ones; moves the product on.
template <typename Layout, int kRows, int kVectors, typename Element>
inline void multiply_columns(Product<Element>& product, std::int64_t vectors) {
  if constexpr (kVectors > 0) {
    if constexpr (kRows * kVectors <= kTileAccumulators || kVectors == 1) {
      for (; vectors >= kVectors; vectors -= kVectors) {
        multiply_tile<Layout, kRows, kVectors>(product, AllLanes{});
        product.b += kVectors * product.vector_stride;
        product.c += kVectors * kLanes;
      }
    }
    multiply_columns<Layout, kRows, kVectors / 2>(product, vectors);
  }
}

/// All of a product with `rows` rows, 1 <= rows <= kRows.
template <typename Layout, int kRows = kTileRows, typename Element>
inline void multiply(Product<Element> product, int rows, std::int64_t columns) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return multiply<Layout, kRows - 1>(product, rows, columns);
  }
  multiply_columns<Layout, kRows, 4>(product, columns / kLanes);
  if (columns % kLanes == 0) return;
  for (int row = 0; row < kRows; ++row) {  // an unusual head size: simple rather than fast
    multiply_tile<Layout, 1, 1>(product, FirstLanes{columns % kLanes});
    product.a += Layout::index(1, 0);
    product.c += product.c_stride;
  }
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
