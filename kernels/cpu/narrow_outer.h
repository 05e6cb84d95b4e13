#pragma once

#include <cstdint>

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/cpu/transpose_loops.h"
#include "kernels/cpu/vector_math.h"

// Products over rows of which one input has few columns, over the 16 lanes of an instruction set:
// wide rows are read where they are, once for as many narrow columns as registers have sums for.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Narrow columns whose sums of even and odd rows registers hold.
inline constexpr std::int64_t kNarrowBlock = kTileAccumulators / 2;
static_assert(kNarrowColumns % kNarrowBlock == 0);

template <typename Part>
inline Lanes load_wide(const NarrowProduct& product, std::int64_t row, std::int64_t column,
                       Part part) {
  const std::byte* const from = product.wide.rows[row];
  const std::int64_t at = product.first_column + column;
  if (product.wide.element == RowSource::Element::bf16) {
    return load(reinterpret_cast<const BFloat16*>(from) + at, part);
  }
  const Lanes value = load(reinterpret_cast<const float*>(from) + at, part);
  return product.order == ProductOrder::chain ? value : round_to_bf16(value);
}

/// Adds rows [first, end) of one step of 32 to the sums of 16 columns and kNarrowBlock narrow ones.
template <ProductOrder kOrder, typename Part>
inline void add_rows(const NarrowProduct& product, std::int64_t first, std::int64_t end,
                     std::int64_t column, std::int64_t narrow, Part part) {
  float* const at = product.sums + narrow * product.sums_stride + column;
  const float* factors = product.narrow + first * product.narrow_stride + narrow;
  Lanes sums[kNarrowBlock];  // tiles: of even rows
  Lanes odd[kNarrowBlock];
  MOESAIC_UNROLL
  for (std::int64_t i = 0; i < kNarrowBlock; ++i) {
    sums[i] = kOrder == ProductOrder::tiles ? broadcast(0) : load(at + i * product.sums_stride);
    odd[i] = broadcast(0);
  }
  const Lanes zero = broadcast(0);
  for (std::int64_t row = first; row < end; row += 2) {
    const Lanes x0 = load_wide(product, row, column, part);
    const Lanes x1 = row + 1 < end ? load_wide(product, row + 1, column, part) : zero;
    const float* const next = row + 1 < end ? factors + product.narrow_stride : product.zeros;
    MOESAIC_UNROLL
    for (std::int64_t i = 0; i < kNarrowBlock; ++i) {
      if constexpr (kOrder == ProductOrder::tiles) {
        sums[i] = fma(broadcast(factors[i]), x0, sums[i]);
        odd[i] = fma(broadcast(next[i]), x1, odd[i]);
      } else if constexpr (kOrder == ProductOrder::dot) {
        sums[i] = fma(broadcast(factors[i]), x0, fma(broadcast(next[i]), x1, sums[i]));
      } else {
        sums[i] = fma(broadcast(factors[i]), x0, sums[i]);
        if (row + 1 < end) sums[i] = fma(broadcast(next[i]), x1, sums[i]);
      }
    }
    factors += 2 * product.narrow_stride;
  }
  const bool is_padded = end - first < kStepDepth;  // with rows of zeros: -0 becomes 0
  MOESAIC_UNROLL
  for (std::int64_t i = 0; i < kNarrowBlock; ++i) {
    if (is_padded && kOrder != ProductOrder::chain) {
      sums[i] = sums[i] + zero;
      odd[i] = odd[i] + zero;
    }
    if constexpr (kOrder == ProductOrder::tiles) {
      sums[i] = load(at + i * product.sums_stride) + (sums[i] + odd[i]);
    }
    store(at + i * product.sums_stride, sums[i]);
  }
}

template <ProductOrder kOrder>
inline void run_narrow(const NarrowProduct& product) {
  constexpr std::int64_t kAhead = 8;  // lines
  const std::int64_t size = element_bytes(product.wide.element);
  for (std::int64_t first = 0; first < product.num_rows; first += kStepDepth) {
    const std::int64_t end =
        first + kStepDepth < product.num_rows ? first + kStepDepth : product.num_rows;
    for_each_vector(product.num_columns, [&](std::int64_t column, auto part) {
      for (std::int64_t row = first; row < end; ++row) {
        prefetch_lines(
            product.wide.rows[row] + (product.first_column + column) * size + kAhead * 64, 1);
      }
      for (std::int64_t narrow = 0; narrow < product.narrow_columns; narrow += kNarrowBlock) {
        add_rows<kOrder>(product, first, end, column, narrow, part);
      }
    });
  }
}

// A call that is not inlined, so that no arithmetic moves across the change of MXCSR.
[[gnu::noinline]] inline void run_rounded(const NarrowProduct& product) {
  product.order == ProductOrder::dot ? run_narrow<ProductOrder::dot>(product)
                                     : run_narrow<ProductOrder::tiles>(product);
}
inline void narrow_product(const NarrowProduct& product) noexcept {
  if (product.order == ProductOrder::chain) return run_narrow<ProductOrder::chain>(product);
  const TileEnvironment environment;
  run_rounded(product);
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
