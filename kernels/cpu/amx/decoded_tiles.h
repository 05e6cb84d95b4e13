#pragma once

#include <algorithm>
#include <optional>

#include "kernels/cpu/amx/tile_product.h"
#include "kernels/cpu/avx512/decoded.h"

// Products of weights that are decoded, once for all rows: some steps of a pair of panels while the
// tiles multiply the rows by those before. Internal to each kernel.

namespace moesaic {
namespace {

/// Steps of decoded weights that are in the L2 cache at a time, beside 256 rows of as many steps.
constexpr std::int64_t kAheadSteps = 64;
/// Two buffers of two panels.
constexpr std::int64_t kAheadBytes = 4 * kAheadSteps * kTileBytes;

/// Panels [panel, panel + count), steps [first, first + steps).
struct Piece {
  std::int64_t panel;
  std::int64_t count;  // 1 or 2
  std::int64_t first;
  std::int64_t steps;
};

/// The pieces of a product in the order in which they are needed: few rows take all steps of a pair
/// of panels before the next pair, so that sums stay in registers, in small pieces that stay in the
/// L1 cache; many rows take all panels before the next steps.
class PieceOrder {
 public:
  PieceOrder(const TileArgs& args, bool few_rows)
      : first_panel_(args.first_panel),
        num_panels_(args.num_panels),
        steps_(step_count(args.matrix->layout.format, args.matrix->depth)),
        few_rows_(few_rows),
        piece_steps_(few_rows ? 4 : kAheadSteps),
        pairs_((num_panels_ + 1) / 2),
        pieces_of_pair_((steps_ + piece_steps_ - 1) / piece_steps_) {}

  [[nodiscard]] std::int64_t count() const { return pairs_ * pieces_of_pair_; }
  [[nodiscard]] Piece at(std::int64_t index) const {
    const std::int64_t pair = few_rows_ ? index / pieces_of_pair_ : index % pairs_;
    const std::int64_t first =
        (few_rows_ ? index % pieces_of_pair_ : index / pairs_) * piece_steps_;
    return {.panel = first_panel_ + 2 * pair,
            .count = std::min<std::int64_t>(2, num_panels_ - 2 * pair),
            .first = first,
            .steps = std::min(piece_steps_, steps_ - first)};
  }
  /// Whether the piece has the first, or the last steps of its panels.
  [[nodiscard]] static bool is_first(const Piece& piece) { return piece.first == 0; }
  [[nodiscard]] bool is_last(const Piece& piece) const {
    return piece.first + piece.steps == steps_;
  }

 private:
  std::int64_t first_panel_;
  std::int64_t num_panels_;
  std::int64_t steps_;
  bool few_rows_;
  std::int64_t piece_steps_;
  std::int64_t pairs_;
  std::int64_t pieces_of_pair_;
};

/// Goes through the tiles of all pieces: those of a piece's first panel, then of its second.
class TileCursor {
 public:
  explicit TileCursor(const PieceOrder& order) : order_(&order) { enter(0); }

  [[nodiscard]] bool at_end() const { return index_ == order_->count(); }
  [[nodiscard]] std::int64_t piece_index() const { return index_; }
  [[nodiscard]] const Piece& piece() const { return piece_; }
  /// Of the tile, counted from the piece's first.
  [[nodiscard]] std::int64_t panel() const { return panel_; }
  [[nodiscard]] std::int64_t step() const { return step_; }

  void advance() {
    if (++step_ < piece_.steps) return;
    step_ = 0;
    if (++panel_ == piece_.count) enter(index_ + 1);
  }

 private:
  void enter(std::int64_t index) {
    index_ = index;
    panel_ = 0;
    if (!at_end()) piece_ = order_->at(index);
  }

  const PieceOrder* order_;
  Piece piece_{};
  std::int64_t index_ = 0;
  std::int64_t panel_ = 0;
  std::int64_t step_ = 0;
};

BEGIN_TARGET(MOESAIC_AVX512)

/// Decodes tiles in the order of the pieces, pieces in turn into two buffers.
template <typename Decoder>
class DecodeAhead {
 public:
  DecodeAhead(const PackedMatrix& matrix, const PieceOrder& order, std::byte* buffers)
      : matrix_(&matrix),
        stride_(matrix.panel_stride()),
        buffers_(buffers),
        next_(order),
        asked_(order) {
    for (std::int64_t i = 0; i < kTilesAsked; ++i) ask();
  }

  static constexpr std::size_t kPanelBytes = kAheadSteps * kTileBytes;
  /// Where a piece stands, one panel kPanelBytes behind the other.
  [[nodiscard]] std::byte* buffer(std::int64_t piece_index) const {
    return buffers_ + static_cast<std::size_t>(piece_index % 2) * 2 * kPanelBytes;
  }

  /// From now on pieces up to `index` may be decoded.
  void allow(std::int64_t index) { end_ = index + 1; }
  /// The next tile.
  void operator()() {
    if (next_.piece_index() < end_ && !next_.at_end()) one();
  }
  /// All that is allowed.
  void finish() {
    while (next_.piece_index() < end_ && !next_.at_end()) one();
  }

 private:
  /// Tiles whose codes are asked for before they are decoded.
  static constexpr std::int64_t kTilesAsked = 2 * kPrefetchBytes / Decoder::kStepBytes;

  [[gnu::noinline]] void one() {
    ask();
    const Piece& piece = next_.piece();
    const std::int64_t p = next_.panel();
    if (piece.panel != panel_) {
      panel_ = piece.panel;
      for (std::int64_t i = 0; i < piece.count; ++i) decoders_[i].emplace(*matrix_, panel_ + i);
    }
    Decoder& decoder = *decoders_[p];
    const std::int64_t step = piece.first + next_.step();
    prefetch_scales(decoder, step, 2 * stride_);
    store_step(decoder, step,
               buffer(next_.piece_index()) + static_cast<std::size_t>(p) * kPanelBytes +
                   next_.step() * kTileBytes);
    next_.advance();
  }

  void ask() {
    if (asked_.at_end()) return;
    const std::byte* panel = matrix_->panels + (asked_.piece().panel + asked_.panel()) * stride_;
    prefetch_lines(panel + (asked_.piece().first + asked_.step()) * Decoder::kStepBytes,
                   Decoder::kStepBytes / 64);
    asked_.advance();
  }

  const PackedMatrix* matrix_;
  std::int64_t stride_;
  std::byte* buffers_;
  TileCursor next_;
  TileCursor asked_;
  std::int64_t end_ = 0;
  std::int64_t panel_ = -1;
  std::optional<Decoder> decoders_[2];  // of panels panel_ and panel_ + 1
};

END_TARGET

template <typename Product, typename Decoder>
void run_decoded_tiles(const TileArgs& args, std::size_t row_bytes) {
  TileProduct<Product> product(args, row_bytes);
  const bool few_rows = product.is_small();
  const PieceOrder order(args, few_rows);
  DecodeAhead<Decoder> ahead(*args.matrix, order, args.scratch);
  ahead.allow(0);
  ahead.finish();
  for (std::int64_t index = 0; index < order.count(); ++index) {
    ahead.allow(index + 1);
    const Piece piece = order.at(index);
    const PanelPair pair{.panels = ahead.buffer(index),
                         .panel_stride = DecodeAhead<Decoder>::kPanelBytes,
                         .count = piece.count,
                         .first_step = piece.first,
                         .steps = piece.steps,
                         .prefetch_steps = 0,
                         .out = reinterpret_cast<std::byte*>(
                             args.out + (piece.panel - args.first_panel) * kPanelColumns)};
    if (few_rows) {
      product.run_small(pair, PieceOrder::is_first(piece) ? Before::zero : Before::keep,
                        order.is_last(piece) ? After::store : After::keep, ahead);
    } else {
      product.run_all(pair, true, !PieceOrder::is_first(piece), ahead);
    }
    ahead.finish();
  }
}

}  // namespace
}  // namespace moesaic
