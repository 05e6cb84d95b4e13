#pragma once

#include <algorithm>

#include "kernels/cpu/amx/row_blocks.h"
#include "kernels/cpu/prefetch.h"

// Products of weights that are stored as tiles.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Weights for multiply_tiles: a pair of panels. While it is multiplied some other memory is asked
/// for, the same in both panels.
struct RawWeights {
  const std::byte* weights;  // at the first step
  std::size_t stride;        // from panel to panel
  const std::byte* ahead;    // what is asked for
  std::int64_t lines;        // of it a step and panel
  std::int64_t turn = 0;     // steps until `ahead` moves by `jump` bytes; 0: never
  std::ptrdiff_t jump = 0;

  [[nodiscard]] const RawWeights& cursor() const { return *this; }
  [[nodiscard]] static std::int64_t begin_run(std::int64_t steps) { return steps; }
  static void end_run(const RawWeights& /*cursor*/, std::int64_t /*run*/) {}

  [[gnu::always_inline]] const std::byte* tile(std::size_t p) const { return weights + p * stride; }
  template <int P>
  [[gnu::always_inline]] void meanwhile() const {
    for (std::int64_t i = 0; i < lines; ++i) prefetch_lines(ahead + P * stride + 64 * i, 1);
  }
  [[gnu::always_inline]] void end_step() {
    weights += kTileBytes;
    ahead += 64 * lines;
    if (--turn == 0) ahead += jump;
  }
};

/// A pair of panels is read from memory while its first rows are multiplied, being asked for
/// shortly before; or, if there are more rows, while those are multiplied by the pair before.
template <typename Product, typename Finish>
void run_raw_tiles(const TileArgs& args, std::size_t row_bytes) {
  constexpr std::int64_t kAheadSteps = 2;
  constexpr std::int64_t kLines = kTileBytes / 64;
  const PackedMatrix& matrix = *args.matrix;
  TileRows<Product, Finish> product(args, row_bytes);
  const auto at = [&](const Part& part) {
    return matrix.panel(args.first_panel + part.panel) + part.first_step * kTileBytes;
  };
  PartOrder order(args);
  const std::int64_t blocks = order.num_blocks();
  bool asked = false;  // whether the pair was asked for while the one before was multiplied
  std::int64_t block = 0;
  for (; !order.at_end(); order.advance()) {
    const Part part = order.part();
    RawWeights weights{.weights = at(part),
                       .stride = static_cast<std::size_t>(matrix.panel_stride()),
                       .ahead = at(part) + kAheadSteps * kTileBytes,
                       .lines = kLines};
    if (part.first_rows) block = 0;
    PartOrder next = order;
    next.next_panels();
    if (blocks == 1 && !next.at_end()) {
      weights.turn = std::max<std::int64_t>(part.steps - kAheadSteps, 0);
      weights.jump = at(next.part()) - (at(part) + part.steps * kTileBytes);
    }
    if (blocks > 1 && (asked || block > 0)) {
      const std::int64_t begin = asked ? block : block - 1;
      const std::int64_t count = asked ? blocks : blocks - 1;
      const std::int64_t first = kLines * begin / count;
      weights.lines = next.at_end() ? 0 : kLines * (begin + 1) / count - first;
      if (!next.at_end()) weights.ahead = at(next.part()) + first * part.steps * 64;
    }
    product.run(part, weights);
    if (++block == blocks) asked = blocks > 1;
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
