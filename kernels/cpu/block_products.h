#pragma once

#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/block_loop.h"

// The products of attention by the register blocks of an instruction set's bf16
// products.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Rows as floats that hold bf16 values; weights take the place of scores.
struct FloatWeights {
  using Element = float;
  static std::size_t row_bytes(std::int64_t depth) { return float_row_bytes(depth); }
  static Lanes rounded(Lanes a) { return round_to_bf16(a); }
  static const std::byte* weights(const Pass& pass, std::int64_t row) {
    return reinterpret_cast<const std::byte*>(pass.scores_of(row));
  }
  static constexpr std::size_t kWeightStride = kScoreRowBytes;
  struct WeightRow {
    float* at;
    Lanes put(std::int64_t key, Lanes low, Lanes high) const {
      low = round_to_bf16(low);
      high = round_to_bf16(high);
      store(at + key, low);
      store(at + key + kLanes, high);
      return add_pairs(low, high);
    }
  };
  static WeightRow weight_row(const Pass& pass, std::int64_t row) { return {pass.scores_of(row)}; }
  static WeightRow row_writer(std::byte* row) { return {reinterpret_cast<float*>(row)}; }
};

template <typename Rows, const BlockTable& kTable>
struct BlockProducts {
  static constexpr std::int64_t kRowsOfPass = kAttentionRows;
  static constexpr std::int64_t kRowsInTurn = kAttentionRows;

  static void begin(const AttentionArgs& /*args*/) {}
  static void begin_gradient() {}
  static void end() {}

  static void pack_queries(const AttentionArgs& args, std::byte* packed) {
    for (std::int64_t row = 0; row < args.num_rows; ++row) {
      const float* query = args.queries + row * args.query_stride;
      auto* to = reinterpret_cast<typename Rows::Element*>(
          packed + static_cast<std::size_t>(row) * Rows::row_bytes(args.head_dim));
      for (std::int64_t d = 0; d < round_up(args.head_dim, kStepDepth); d += kLanes) {
        store(to + d, broadcast(0));
      }
      for_each_vector(args.head_dim, [&](std::int64_t d, auto part) {
        store(to + d, Rows::rounded(load(query + d, part)), part);
      });
    }
  }

  static const std::byte* packed_query(const AttentionArgs& args, const std::byte* packed,
                                       std::int64_t row) {
    return packed + static_cast<std::size_t>(row) * Rows::row_bytes(args.head_dim);
  }

  template <typename Between>
  static void multiply_queries(const Pass& pass, RowRange rows, const PanelRun& run,
                               Between& /*between*/) {
    const std::size_t row_bytes = Rows::row_bytes(pass.args.head_dim);
    run_blocks({.rows = pass.queries + static_cast<std::size_t>(rows.first) * row_bytes,
                .row_bytes = row_bytes,
                .panels = run.panels,
                .panel_stride = static_cast<std::size_t>(run.steps) * kTileBytes,
                .steps = run.steps,
                .resume = false,
                .out = pass.scores_of(rows.first) + run.first_key,
                .out_stride = kScoreStride,
                .floats = pass.floats},
               rows.end - rows.first, run.count, kTable);
  }

  static auto weight_row(const Pass& pass, std::int64_t row) { return Rows::weight_row(pass, row); }

  static auto row_writer(std::byte* rows, std::int64_t steps, std::int64_t row) {
    return Rows::row_writer(rows +
                            static_cast<std::size_t>(row) * Rows::row_bytes(steps * kStepDepth));
  }
  static void multiply_rows(const GradientProduct& product) {
    const std::size_t row_bytes = Rows::row_bytes(product.row_steps * kStepDepth);
    run_blocks({.rows = product.rows + static_cast<std::size_t>(product.first_row) * row_bytes +
                        static_cast<std::size_t>(product.first_step * kStepDepth) *
                            sizeof(typename Rows::Element),
                .row_bytes = row_bytes,
                .panels = product.panels,
                .panel_stride = product.panel_stride,
                .steps = product.steps,
                .resume = product.resume,
                .out = product.out,
                .out_stride = product.out_stride},
               product.num_rows, product.num_panels, kTable);
  }

  template <typename Between>
  static void add_values(const Pass& pass, RowRange rows, const ValueRuns& runs,
                         Between& /*between*/) {
    for (int i = 0; i < runs.count; ++i) add_run(pass, rows, runs.run[i]);
  }
  static void add_values_of_row(const Pass& pass, std::int64_t row, const ValueRun& run) {
    add_run(pass, {row, row + 1}, run);
  }

 private:
  static void add_run(const Pass& pass, RowRange rows, const ValueRun& run) {
    const std::int64_t key = run.strip_key + run.keys.first;
    run_blocks({.rows = Rows::weights(pass, rows.first) +
                        static_cast<std::size_t>(key) * sizeof(typename Rows::Element),
                .row_bytes = Rows::kWeightStride,
                .panels = run.block + run.keys.first / kStepDepth * kTileBytes,
                .panel_stride = kValuePanelBytes,
                .steps = (run.keys.end - run.keys.first) / kStepDepth,
                .resume = true,
                .out = pass.sums + rows.first * pass.stride,
                .out_stride = pass.stride,
                .floats = pass.floats},
               rows.end - rows.first, pass.padded_dim / kPanelColumns, kTable);
  }
};

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
