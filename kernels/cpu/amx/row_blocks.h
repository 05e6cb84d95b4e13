#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>

#include "base/rounding.h"
#include "kernels/cpu/amx/result_stream.h"
#include "kernels/cpu/amx/step_blocks.h"
#include "kernels/gemm_kernel.h"

// How the rows of a product become blocks of tiles (why these shapes: docs/kernels.md). Packed rows
// are blocks of 16 rows, the last with fewer: [steps][rows of the block][64 bytes].

namespace moesaic {
namespace {

/// Tiles of rows that are multiplied together: three whole ones, two of which the second may have
/// fewer rows, or one.
struct RowTiles {
  std::int64_t first;  // counts tiles of kRowBlock rows
  int rows0;           // of the first tile
  int rows1;           // of the second, or 0
  bool three;

  [[nodiscard]] int num_rows() const { return rows0 + rows1 + (three ? 16 : 0); }
};

/// The row tiles of a product in turn: as many triples as there are, then pairs; two pairs rather
/// than a triple and a tile that is alone.
class RowTilesOf {
 public:
  explicit RowTilesOf(std::int64_t num_rows)
      : num_rows_(num_rows),
        tiles_(divide_up(num_rows, kRowBlock)),
        triples_(num_rows / kRowBlock / 3) {
    if (tiles_ % 3 == 1 && triples_ > 0) --triples_;
  }

  [[nodiscard]] std::int64_t count() const { return triples_ + (tiles_ - 3 * triples_ + 1) / 2; }
  [[nodiscard]] RowTiles at(std::int64_t index) const {
    if (index < triples_) return {.first = 3 * index, .rows0 = 16, .rows1 = 16, .three = true};
    const std::int64_t first = 3 * triples_ + 2 * (index - triples_);
    return {.first = first, .rows0 = rows(first), .rows1 = rows(first + 1), .three = false};
  }

 private:
  [[nodiscard]] int rows(std::int64_t tile) const {
    return static_cast<int>(std::clamp<std::int64_t>(num_rows_ - tile * kRowBlock, 0, kRowBlock));
  }

  std::int64_t num_rows_;
  std::int64_t tiles_;
  std::int64_t triples_;
};

/// Some tiles of rows, over some steps, times a pair of panels (the last may be alone).
struct Part {
  RowTiles rows;
  std::int64_t panel;  // counts the product's
  std::int64_t panels;
  std::int64_t first_step;
  std::int64_t steps;
  bool first_rows;  // the first row tiles by these panels and steps
};

/// The parts of a product in turn: ranges of steps, so that all rows' packed form stays in the L2
/// cache; in each the pairs of panels; for each pair the tiles of rows.
class PartOrder {
 public:
  /// `most_steps`: of a range.
  explicit PartOrder(const TileArgs& args,
                     std::int64_t most_steps = std::numeric_limits<std::int64_t>::max())
      : rows_(args.num_rows),
        num_panels_(args.num_panels),
        steps_(step_count(args.matrix->layout.format, args.matrix->depth)) {
    const std::int64_t most =
        std::min(most_steps, std::max(kLeastSteps, kRowBytes / (64 * args.num_rows)));
    const std::int64_t ranges = divide_up(steps_, most);
    range_ = divide_up(steps_, ranges);
  }

  [[nodiscard]] std::int64_t num_blocks() const { return rows_.count(); }
  /// Steps of a range, but for the last, which may have fewer.
  [[nodiscard]] std::int64_t range_steps() const { return range_; }
  [[nodiscard]] bool at_end() const { return first_step_ >= steps_; }
  [[nodiscard]] Part part() const {
    return {.rows = rows_.at(block_),
            .panel = panel_,
            .panels = std::min<std::int64_t>(2, num_panels_ - panel_),
            .first_step = first_step_,
            .steps = std::min(range_, steps_ - first_step_),
            .first_rows = block_ == 0};
  }
  void advance() {
    if (++block_ < num_blocks()) return;
    block_ = 0;
    next_panels();
  }
  void next_panels() {
    panel_ += 2;
    if (panel_ < num_panels_) return;
    panel_ = 0;
    first_step_ += range_;
  }

 private:
  /// Of packed rows that stay in the L2 cache (2 MiB, whose second half is slower), beside weights
  /// and results.
  static constexpr std::int64_t kRowBytes = std::int64_t{1} << 20;
  /// Shorter ranges would have to load and store sums too often.
  static constexpr std::int64_t kLeastSteps = 16;

  RowTilesOf rows_;
  std::int64_t num_panels_;
  std::int64_t steps_;
  std::int64_t range_;
  std::int64_t first_step_ = 0;
  std::int64_t panel_ = 0;
  std::int64_t block_ = 0;
};

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Sums are results.
struct NoFinish {
  explicit NoFinish(const TileArgs& /*args*/) {}
  void operator()(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const {}
};

/// The packed rows of a product, and what all its blocks have in common. `Finish` is made from the
/// TileArgs; called with (first row, rows, panel, panels), it turns their finished sums into
/// results, while they are in the L1 cache.
template <typename Product, typename Finish>
class TileRows {
 public:
  TileRows(const TileArgs& args, std::size_t row_bytes)
      : finish_(args),
        results_(args),
        args_(args),
        last_step_(step_count(args.matrix->layout.format, args.matrix->depth)),
        rows_(args.packed_rows),
        block_bytes_(row_bytes * kRowBlock),
        out_(reinterpret_cast<std::byte*>(args.out)),
        out_stride_(static_cast<std::size_t>(args.out_stride) * sizeof(float)),
        resume_(args.resume) {}
  ~TileRows() { release_tiles(); }
  TileRows(const TileRows&) = delete;
  TileRows& operator=(const TileRows&) = delete;

  template <typename Weights>
  void run(const Part& part, Weights& of_part) {
    StreamingWeights weights(of_part, results_);
    const bool is_last = part.first_step + part.steps == last_step_;
    StepBlock block = block_of(part);
    std::array<MoreSteps, kMostTileTerms> more;
    if (is_last) block.more = more_of(part, block, more);
    const Before before = resume_ || part.first_step > 0 ? Before::load : Before::zero;
    set_rows(part.rows.rows0, part.rows.rows1);
    if (part.rows.three) {
      part.panels == 2 ? multiply_three_tiles<Product, 2>(block, before, weights)
                       : multiply_three_tiles<Product, 1>(block, before, weights);
    } else if (part.rows.rows1 > 0) {
      part.panels == 2 ? multiply_tiles<Product, 2, 2>(block, before, weights)
                       : multiply_tiles<Product, 2, 1>(block, before, weights);
    } else {
      part.panels == 2 ? multiply_tiles<Product, 1, 2>(block, before, weights)
                       : multiply_tiles<Product, 1, 1>(block, before, weights);
    }
    if (!is_last) return;
    const std::int64_t first_row = part.rows.first * kRowBlock;
    finish_(first_row, part.rows.num_rows(), part.panel, part.panels);
    results_.begin(first_row, part.rows.num_rows(), part.panel, part.panels, 2 * part.steps);
  }

 private:
  /// The steps of the terms, for the tiles and panels of a part.
  std::span<const MoreSteps> more_of(const Part& part, const StepBlock& block,
                                     std::array<MoreSteps, kMostTileTerms>& more) const {
    assert(args_.terms.size() <= kMostTileTerms);
    for (std::size_t i = 0; i < args_.terms.size(); ++i) {
      const auto& [rows, matrix] = args_.terms[i];
      const std::int64_t steps = step_count(matrix->layout.format, matrix->depth);
      more[i] = {.rows = {},
                 .weights = matrix->panel(args_.first_panel + part.panel),
                 .stride = static_cast<std::size_t>(matrix->panel_stride()),
                 .steps = steps};
      for (std::int64_t tile = 0; tile < 3 && block.rows[tile] != nullptr; ++tile) {
        more[i].rows[tile] = rows + (part.rows.first + tile) * steps * kTileBytes;
      }
    }
    return std::span(more).first(args_.terms.size());
  }

  [[nodiscard]] StepBlock block_of(const Part& part) const {
    const RowTiles& tiles = part.rows;
    StepBlock block{.rows = {},
                    .row_step = {},
                    .steps = part.steps,
                    .out = out_ + static_cast<std::size_t>(tiles.first * kRowBlock) * out_stride_ +
                           part.panel * kPanelColumns * 4,
                    .out_stride = out_stride_};
    const int rows[3] = {tiles.rows0, tiles.rows1, tiles.three ? 16 : 0};
    for (std::size_t i = 0; i < 3 && rows[i] > 0; ++i) {
      block.row_step[i] = static_cast<std::size_t>(rows[i]) * 64;
      block.rows[i] = rows_ + (static_cast<std::size_t>(tiles.first) + i) * block_bytes_ +
                      static_cast<std::size_t>(part.first_step) * block.row_step[i];
    }
    return block;
  }

  /// LDTILECFG takes longer than ten products: only where something changes.
  void set_rows(int rows0, int rows1) {
    if (rows0 == rows0_ && rows1 == rows1_) return;
    configure(rows0, rows1);
    rows0_ = rows0;
    rows1_ = rows1;
  }

  Finish finish_;
  ResultStream results_;
  const TileArgs& args_;
  std::int64_t last_step_;
  const std::byte* rows_;
  std::size_t block_bytes_;
  std::byte* out_;
  std::size_t out_stride_;
  bool resume_;
  int rows0_ = -1;
  int rows1_ = -1;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
