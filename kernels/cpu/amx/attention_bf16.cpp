#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/lanes.h"

#include <algorithm>

#include "kernels/cpu/amx/tile_block.h"
#include "kernels/cpu/avx512/bf16_weights.h"

// Attention by TDPBF16PS. Queries and weights are packed as tiles: [tile of 16
// rows][step][16 rows] [64 bytes]; rows that a tile lacks are garbage, and so
// are their results.

namespace moesaic {

extern const AttentionKernel amx_attention_bf16_kernel;

MOESAIC_BEGIN_LANES
namespace {

constexpr std::int64_t kTileRowCount = 16;
constexpr std::int64_t kStripSteps = kKeysPerStrip / kStepDepth;

struct TileProducts {
  static constexpr std::int64_t kRowsTogether = 2 * kTileRowCount;

  static void begin(const AttentionArgs& args) { set_rows(args.num_rows); }
  static void begin_gradient() { set_rows(kTileRowCount); }
  static void end() { release_tiles(); }

  static void pack_queries(const Pass& pass) {
    const AttentionArgs& args = pass.args;
    for (std::int64_t row = 0; row < args.num_rows; ++row) {
      const float* query = args.queries + row * args.query_stride;
      std::byte* const to = line(pass.queries, query_steps(pass), row);
      for (std::int64_t d = 0; d < round_up(args.head_dim, kStepDepth); d += kLanes) {
        store(element(to, d), broadcast(0));
      }
      for_each_vector(args.head_dim, [&](std::int64_t d, auto part) {
        store(element(to, d), load(query + d, part), part);
      });
    }
  }

  template <typename Meanwhile>
  static void multiply_queries(const Pass& pass, RowSpan rows, const PanelRun& run,
                               Meanwhile& meanwhile) {
    const std::int64_t together = panels_together(pass);
    for (std::int64_t panel = 0; panel < run.count; panel += together) {
      for (std::int64_t row = rows.first; row < rows.end; row += 2 * kTileRowCount) {
        const std::byte* const packed = line(pass.queries, run.steps, row);
        const TileBlock block{
            .rows = {packed, packed + run.steps * kTileBytes, nullptr},
            .row_step = {kTileBytes, kTileBytes, 0},
            .panels = run.panels + panel * run.steps * kTileBytes,
            .panel_stride = static_cast<std::size_t>(run.steps) * kTileBytes,
            .steps = run.steps,
            .prefetch_steps = row == 0 ? 2 : 0,
            .out = reinterpret_cast<std::byte*>(pass.scores + row * kScoreStride + run.first_key +
                                                panel * kPanelColumns),
            .out_stride = kScoreRowBytes};
        multiply(block, {rows.end - row > kTileRowCount, std::min(together, run.count - panel) > 1},
                 {Before::zero, After::store}, meanwhile);
      }
    }
  }

  static Bf16WeightRow<kTileBytes> weight_row(const Pass& pass, std::int64_t row) {
    return {line(pass.weights, kStripSteps, row)};
  }

  template <typename Meanwhile>
  static void add_values(const Pass& pass, RowSpan rows, const ValueRuns& runs,
                         Meanwhile& meanwhile) {
    const std::int64_t together = panels_together(pass);
    for (std::int64_t panel = 0; panel < pass.padded_dim / kPanelColumns; panel += together) {
      for (std::int64_t row = rows.first; row < rows.end; row += 2 * kTileRowCount) {
        add_tiles(pass, {row, rows.end - row > kTileRowCount, panel}, runs, meanwhile);
      }
    }
  }

  static void add_values_of_row(const Pass& pass, std::int64_t row, const ValueRun& run) {
    const auto nothing = [] {};
    set_rows(1);
    const std::int64_t together = panels_together(pass);
    for (std::int64_t panel = 0; panel < pass.padded_dim / kPanelColumns; panel += together) {
      add_tiles(pass, {row, false, panel}, {{run}, 1}, nothing);
    }
    set_rows(pass.args.num_rows);
  }

  static Bf16WeightRow<kTileBytes> row_writer(std::byte* rows, std::int64_t steps,
                                              std::int64_t row) {
    return {line(rows, steps, row)};
  }

  static void multiply_rows(const GradientProduct& product) {
    auto nothing = [] {};
    const std::int64_t end = product.first_row + product.num_rows;
    for (std::int64_t panel = 0; panel < product.num_panels; panel += 2) {
      for (std::int64_t row = product.first_row; row < end; row += 2 * kTileRowCount) {
        const std::byte* const packed =
            line(product.rows, product.row_steps, row) + product.first_step * kTileBytes;
        const TileBlock block{
            .rows = {packed, packed + product.row_steps * kTileBytes, nullptr},
            .row_step = {kTileBytes, kTileBytes, 0},
            .panels = product.panels + static_cast<std::size_t>(panel) * product.panel_stride,
            .panel_stride = product.panel_stride,
            .steps = product.steps,
            .prefetch_steps = 0,
            .out = reinterpret_cast<std::byte*>(product.out +
                                                (row - product.first_row) * product.out_stride +
                                                panel * kPanelColumns),
            .out_stride = static_cast<std::size_t>(product.out_stride) * sizeof(float)};
        multiply(block, {end - row > kTileRowCount, product.num_panels - panel > 1},
                 {product.resume ? Before::load : Before::zero, After::store}, nothing);
      }
    }
  }

 private:
  /// Few rows read panels one after the other, as one stream.
  static std::int64_t panels_together(const Pass& pass) {
    return pass.args.num_rows > kFewRows ? 2 : 1;
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
  static std::int64_t query_steps(const Pass& pass) {
    return round_up(pass.args.head_dim, kStepDepth) / kStepDepth;
  }
  /// Where a row's first step starts.
  template <typename Byte>  // const or not
  static Byte* line(Byte* packed, std::int64_t steps, std::int64_t row) {
    return packed + row / kTileRowCount * steps * kTileBytes + row % kTileRowCount * 64;
  }
  static BFloat16* element(std::byte* first_step, std::int64_t k) {
    return reinterpret_cast<BFloat16*>(first_step + k / kStepDepth * kTileBytes) + k % kStepDepth;
  }

  struct Sums {
    Before before;
    After after;
  };

  template <typename Meanwhile>
  static void multiply(const TileBlock& block, Shape shape, Sums sums, Meanwhile& meanwhile) {
    const auto [before, after] = sums;
    if (shape.two_tiles) {
      shape.two_panels ? run_tile_block<Bf16Product, 2, 2>(block, before, after, meanwhile)
                       : run_tile_block<Bf16Product, 2, 1>(block, before, after, meanwhile);
    } else {
      shape.two_panels ? run_tile_block<Bf16Product, 1, 2>(block, before, after, meanwhile)
                       : run_tile_block<Bf16Product, 1, 1>(block, before, after, meanwhile);
    }
  }

  /// Sums stay in their tiles from run to run.
  template <typename Meanwhile>
  static void add_tiles(const Pass& pass, const Place& at, const ValueRuns& runs,
                        Meanwhile& meanwhile) {
    const std::int64_t panels =
        std::min(panels_together(pass), pass.padded_dim / kPanelColumns - at.panel);
    for (int i = 0; i < runs.count; ++i) {
      const ValueRun& run = runs.run[i];
      const std::int64_t step = (run.strip_key + run.keys.first) / kStepDepth;
      const std::byte* const weights = line(pass.weights, kStripSteps, at.row) + step * kTileBytes;
      const TileBlock block{.rows = {weights, weights + kStripSteps * kTileBytes, nullptr},
                            .row_step = {kTileBytes, kTileBytes, 0},
                            .panels = run.block + at.panel * kValuePanelBytes +
                                      run.keys.first / kStepDepth * kTileBytes,
                            .panel_stride = kValuePanelBytes,
                            .steps = (run.keys.end - run.keys.first) / kStepDepth,
                            .prefetch_steps = panels_together(pass) == 1 ? 2 : 0,
                            .out = reinterpret_cast<std::byte*>(pass.sums + at.row * pass.stride +
                                                                at.panel * kPanelColumns),
                            .out_stride = static_cast<std::size_t>(pass.stride) * sizeof(float)};
      multiply(
          block, {at.two_tiles, panels > 1},
          {i == 0 ? Before::load : Before::keep, i + 1 == runs.count ? After::store : After::keep},
          meanwhile);
    }
  }
};

}  // namespace
MOESAIC_END_LANES

constinit const AttentionKernel amx_attention_bf16_kernel =
    make_bf16_attention<TileProducts>(Isa::amx, "amx/bf16");

}  // namespace moesaic
