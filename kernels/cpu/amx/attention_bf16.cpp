#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/lanes.h"

#include <algorithm>
#include <span>

#include "kernels/cpu/amx/tile_block.h"
#include "kernels/cpu/avx512/bf16_weights.h"

// Attention by TDPBF16PS. Queries are packed as tiles: [tile of 16 rows][step][16 rows][64 bytes];
// rows that a tile lacks are garbage, and so are their results.

namespace moesaic {

extern const AttentionKernel amx_attention_bf16_kernel;

MOESAIC_BEGIN_LANES
namespace {

constexpr std::int64_t kTileRowCount = 16;
/// The weights of 32 keys take the place of the first 16 of their scores, which leaves the L1 cache
/// to keys and values.
constexpr std::int64_t kWeightStepBytes = kStepDepth * sizeof(float);

struct TileProducts {
  static constexpr std::int64_t kRowsOfPass = kRowsPerSegment;
  static constexpr std::int64_t kRowsInTurn = 2 * kTileRowCount;

  static void begin(const AttentionArgs& args) { set_rows(args.num_rows); }
  static void begin_gradient() { set_rows(kTileRowCount); }
  static void end() { release_tiles(); }

  static void pack_queries(const AttentionArgs& args, std::byte* packed) {
    const std::int64_t head_dim = args.head_dim;
    const std::int64_t steps = query_steps(args);
    for (std::int64_t row = 0; row < args.num_rows; ++row) {
      const float* query = args.queries + row * args.query_stride;
      std::byte* const to = line(packed, steps, row);
      for (std::int64_t d = head_dim / kLanes * kLanes; d < steps * kStepDepth; d += kLanes) {
        store(element(to, d), broadcast(0));
      }
      for_each_vector(head_dim, [&](std::int64_t d, auto part) {
        store(element(to, d), load(query + d, part), part);
      });
    }
  }

  static const std::byte* packed_query(const AttentionArgs& args, const std::byte* packed,
                                       std::int64_t row) {
    return line(packed, query_steps(args), row);
  }

  template <typename Between>
  static void multiply_queries(const Pass& pass, RowRange rows, const PanelRun& run,
                               Between& between) {
    const std::int64_t together = panels_together(pass);
    for (std::int64_t panel = 0; panel < run.count; panel += together) {
      for (std::int64_t row = rows.first; row < rows.end; row += 2 * kTileRowCount) {
        const TileBlock block{.row_tile_stride = static_cast<std::size_t>(run.steps) * kTileBytes,
                              .row_stride = 64,
                              .row_step = kTileBytes,
                              .panel_stride = static_cast<std::size_t>(run.steps) * kTileBytes,
                              .prefetch_steps = prefetch_steps(pass),
                              .out = reinterpret_cast<std::byte*>(
                                  pass.scores_of(row) + run.first_key + panel * kPanelColumns),
                              .out_stride = kScoreRowBytes};
        const TileRun tiles{.rows = line(pass.queries, run.steps, row),
                            .panels = run.panels + panel * run.steps * kTileBytes,
                            .steps = run.steps};
        multiply(block, {rows.end - row > kTileRowCount, std::min(together, run.count - panel) > 1},
                 {&tiles, 1}, Before::zero, between);
      }
    }
  }

  /// Scores of 32 keys become weights relative to `greatest`; as power_of_two() has them, in fewer
  /// instructions: beside products of tiles one port is left.
  [[gnu::always_inline]] static Lanes weigh_step(float* scores, Lanes factor, Lanes greatest) {
    const auto weight = [=](std::int64_t key) __attribute__((always_inline)) {
      const Lanes x = max(broadcast(kLowestPower), load(scores + key) * factor - greatest);
      const Lanes r = minus_nearest(x);
      return scale_by_power(power_of_fraction(r), x - r);
    };
    const Bf16WeightRow<kWeightStepBytes> weights{reinterpret_cast<std::byte*>(scores)};
    return weights.put(0, weight(0), weight(kLanes));
  }

  static Bf16WeightRow<kWeightStepBytes> weight_row(const Pass& pass, std::int64_t row) {
    return {weights_of(pass, row)};
  }

  template <typename Between>
  static void add_values(const Pass& pass, RowRange rows, const ValueRuns& runs, Between& between) {
    if (runs.count == 0) return;
    const std::int64_t together = panels_together(pass);
    for (std::int64_t panel = 0; panel < pass.padded_dim / kPanelColumns; panel += together) {
      for (std::int64_t row = rows.first; row < rows.end; row += 2 * kTileRowCount) {
        add_tiles(pass, {row, rows.end - row > kTileRowCount, panel}, runs, between);
      }
    }
  }

  static void add_values_of_row(const Pass& pass, std::int64_t row, const ValueRun& run) {
    set_rows(1);
    NothingBetween nothing;
    add_values(pass, {row, row + 1}, {{run}, 1}, nothing);
    set_rows(pass.args.num_rows);
  }

  static Bf16WeightRow<kTileBytes> row_writer(std::byte* rows, std::int64_t steps,
                                              std::int64_t row) {
    return {line(rows, steps, row)};
  }

  static void multiply_rows(const GradientProduct& product) {
    NothingBetween nothing;
    const std::int64_t end = product.first_row + product.num_rows;
    for (std::int64_t panel = 0; panel < product.num_panels; panel += 2) {
      for (std::int64_t row = product.first_row; row < end; row += 2 * kTileRowCount) {
        const TileBlock block{
            .row_tile_stride = static_cast<std::size_t>(product.row_steps) * kTileBytes,
            .row_stride = 64,
            .row_step = kTileBytes,
            .panel_stride = product.panel_stride,
            .prefetch_steps = 0,
            .out = reinterpret_cast<std::byte*>(product.out +
                                                (row - product.first_row) * product.out_stride +
                                                panel * kPanelColumns),
            .out_stride = static_cast<std::size_t>(product.out_stride) * sizeof(float)};
        const TileRun tiles{
            .rows = line(product.rows, product.row_steps, row) + product.first_step * kTileBytes,
            .panels = product.panels + static_cast<std::size_t>(panel) * product.panel_stride,
            .steps = product.steps};
        multiply(block, {end - row > kTileRowCount, product.num_panels - panel > 1}, {&tiles, 1},
                 product.resume ? Before::load : Before::zero, nothing);
      }
    }
  }

 private:
  /// Few rows read panels one after the other, as one stream.
  static std::int64_t panels_together(const Pass& pass) {
    return pass.args.num_rows > kFewRows ? 2 : 1;
  }
  static std::int64_t prefetch_steps(const Pass& pass) {
    return pass.args.num_rows > kFewRows ? 0 : 2;
  }
  struct Shape {
    bool two_tiles;
    bool two_panels;
  };
  /// Rows from `row` on, panels of values from `panel` on.
  struct Place {
    std::int64_t row;
    bool two_tiles;
    std::int64_t panel;
  };

  /// Tiles are whole, unless there is but one.
  static void set_rows(std::int64_t rows) {
    const int count = static_cast<int>(rows < kTileRowCount ? rows : kTileRowCount);
    configure(count, count);
  }
  static std::byte* weights_of(const Pass& pass, std::int64_t row) {
    return reinterpret_cast<std::byte*>(pass.scores_of(row));
  }
  static std::int64_t query_steps(const AttentionArgs& args) {
    return round_up(args.head_dim, kStepDepth) / kStepDepth;
  }
  /// Where a row's first step starts.
  template <typename Byte>  // const or not
  static Byte* line(Byte* packed, std::int64_t steps, std::int64_t row) {
    return packed + row / kTileRowCount * steps * kTileBytes + row % kTileRowCount * 64;
  }
  static BFloat16* element(std::byte* first_step, std::int64_t k) {
    return reinterpret_cast<BFloat16*>(first_step + k / kStepDepth * kTileBytes) + k % kStepDepth;
  }

  template <typename Between>
  static void multiply(const TileBlock& block, Shape shape, std::span<const TileRun> runs,
                       Before before, Between& between) {
    if (shape.two_tiles) {
      shape.two_panels ? run_tile_block<Bf16Product, 2, 2>(block, runs, before, between)
                       : run_tile_block<Bf16Product, 2, 1>(block, runs, before, between);
    } else {
      shape.two_panels ? run_tile_block<Bf16Product, 1, 2>(block, runs, before, between)
                       : run_tile_block<Bf16Product, 1, 1>(block, runs, before, between);
    }
  }

  /// Sums stay in their tiles from run to run.
  template <typename Between>
  static void add_tiles(const Pass& pass, const Place& at, const ValueRuns& runs,
                        Between& between) {
    const std::int64_t panels =
        std::min(panels_together(pass), pass.padded_dim / kPanelColumns - at.panel);
    TileRun tiles[ValueRuns::kMost];
    for (int i = 0; i < runs.count; ++i) {
      const ValueRun& run = runs.run[i];
      const std::int64_t step = (run.strip_key + run.keys.first) / kStepDepth;
      tiles[i] = {.rows = weights_of(pass, at.row) + step * kWeightStepBytes,
                  .panels = run.block + at.panel * kValuePanelBytes +
                            run.keys.first / kStepDepth * kTileBytes,
                  .steps = (run.keys.end - run.keys.first) / kStepDepth};
    }
    const TileBlock block{.row_tile_stride = kTileRowCount * kScoreRowBytes,
                          .row_stride = kScoreRowBytes,
                          .row_step = kWeightStepBytes,
                          .panel_stride = kValuePanelBytes,
                          .prefetch_steps = prefetch_steps(pass),
                          .out = reinterpret_cast<std::byte*>(pass.sums + at.row * pass.stride +
                                                              at.panel * kPanelColumns),
                          .out_stride = static_cast<std::size_t>(pass.stride) * sizeof(float)};
    multiply(block, {at.two_tiles, panels > 1}, {tiles, static_cast<std::size_t>(runs.count)},
             Before::load, between);
  }
};

}  // namespace
MOESAIC_END_LANES

constinit const AttentionKernel amx_attention_bf16_kernel =
    make_bf16_attention<TileProducts>(Isa::amx, "amx/bf16");

}  // namespace moesaic
