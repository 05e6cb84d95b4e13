#pragma once

#include <algorithm>
#include <optional>

#include "kernels/cpu/amx/tile_product.h"
#include "kernels/cpu/avx512/decoded.h"

namespace moesaic {
namespace {

/// Panels [panel, panel + count), steps [first, first + steps), to out + p * panel_stride.
struct DecodeTarget {
  std::int64_t panel;
  std::int64_t count;  // 1 or 2
  std::int64_t first;
  std::int64_t steps;
  std::byte* out;
  std::size_t panel_stride;
};

BEGIN_TARGET(MOESAIC_AVX512)

/// Decodes steps of a pair of panels one at a time, between the products of another pair.
template <typename Decoder>
class DecodeAhead {
 public:
  explicit DecodeAhead(const PackedMatrix& matrix) : matrix_(&matrix) {}

  void begin(const DecodeTarget& target) {
    const bool same_panels = decoders_[0] && target.panel == target_.panel;
    target_ = target;
    next_ = 0;
    end_ = target.count * target.steps;
    if (same_panels) return;
    for (std::int64_t p = 0; p < target.count; ++p) {
      decoders_[p].emplace(*matrix_, target.panel + p);
    }
  }
  void operator()() {
    if (next_ < end_) one();
  }
  void finish() {
    while (next_ < end_) one();
  }

 private:
  [[gnu::noinline]] void one() {
    const std::int64_t p = next_ < target_.steps ? 0 : 1;
    const std::int64_t step = next_ - p * target_.steps;
    decoders_[p]->store(
        target_.first + step,
        target_.out + static_cast<std::size_t>(p) * target_.panel_stride + step * kTileBytes);
    ++next_;
  }

  const PackedMatrix* matrix_;
  DecodeTarget target_{};
  std::optional<PanelDecoder<Decoder>> decoders_[2];
  std::int64_t next_ = 0;
  std::int64_t end_ = 0;
};

END_TARGET

/// Steps of decoded weights that are in the L2 cache at a time, beside 256 rows of as many steps.
constexpr std::int64_t kAheadSteps = 64;
/// Two buffers of two panels.
constexpr std::int64_t kAheadBytes = 4 * kAheadSteps * kTileBytes;

/// Weights that are decoded, once for all rows: the next pair of panels while the tiles multiply
/// the rows by this one. With few rows decoding is most of the work, and small chunks stay in the
/// L1 cache.
template <typename Product, typename Decoder>
void run_decoded_tiles(const TileArgs& args, std::size_t row_bytes) {
  constexpr std::int64_t kChunkSteps = 4;
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t all_steps = step_count(matrix.layout.format, matrix.depth);
  TileProduct<Product> product(args, row_bytes);
  DecodeAhead<Decoder> ahead(matrix);
  const bool small = product.is_small();
  const std::int64_t chunk = small ? kChunkSteps : kAheadSteps;
  constexpr std::size_t kStride = kAheadSteps * kTileBytes;
  std::byte* const buffers[2] = {args.scratch, args.scratch + 2 * kStride};

  // Pieces of work in order: few rows take all chunks of a pair of panels before the next pair, so
  // that sums stay in registers; many take all panels before the next chunk.
  const std::int64_t pairs = (args.num_panels + 1) / 2;
  const std::int64_t chunks = (all_steps + chunk - 1) / chunk;
  const auto piece_at = [&](std::int64_t index) {
    const std::int64_t pair = small ? index / chunks : index % pairs;
    const std::int64_t first = (small ? index % chunks : index / pairs) * chunk;
    return DecodeTarget{.panel = args.first_panel + 2 * pair,
                        .count = std::min<std::int64_t>(2, args.num_panels - 2 * pair),
                        .first = first,
                        .steps = std::min(chunk, all_steps - first),
                        .out = buffers[index % 2],
                        .panel_stride = kStride};
  };
  const std::int64_t pieces = pairs * chunks;
  for (std::int64_t index = 0; index < pieces; ++index) {
    const DecodeTarget piece = piece_at(index);
    if (index == 0) {
      ahead.begin(piece);
      ahead.finish();
    }
    if (index + 1 < pieces) ahead.begin(piece_at(index + 1));
    const PanelPair pair{.panels = piece.out,
                         .panel_stride = kStride,
                         .count = piece.count,
                         .first_step = piece.first,
                         .steps = piece.steps,
                         .prefetch_steps = 0,
                         .out = reinterpret_cast<std::byte*>(
                             args.out + (piece.panel - args.first_panel) * kPanelColumns)};
    if (small) {
      product.run_small(pair, piece.first == 0 ? Before::zero : Before::keep,
                        piece.first + piece.steps == all_steps ? After::store : After::keep, ahead);
    } else {
      product.run_all(pair, true, piece.first > 0, ahead);
    }
    ahead.finish();
  }
}

}  // namespace
}  // namespace moesaic
