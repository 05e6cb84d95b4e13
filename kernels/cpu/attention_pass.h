#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/attention_kernel.h"
#include "kernels/cpu/attention_states.h"
#include "kernels/cpu/attention_values.h"

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Rows that wait for memory rather than for products: what they read should be one stream.
inline constexpr std::int64_t kFewRows = 16;
inline constexpr std::int64_t kAskedBytes = 4096;

/// Panels of a block of keys, one after the other.
struct PanelRun {
  const std::byte* panels;
  std::int64_t count;
  std::int64_t steps;      // of 32 elements of the head
  std::int64_t first_key;  // of the strip
};

/// Some rows of a pass.
struct RowRange {
  std::int64_t first;
  std::int64_t end;

  [[nodiscard]] constexpr bool empty() const { return first >= end; }
};

/// Up to kRowsPerSegment rows on their way over the keys of a segment.
struct Pass {
  Pass(const AttentionArgs& call, const std::byte* packed_queries, float* segments_before)
      : args(call),
        padded_dim(padded_value_dim(call.value_dim)),
        stride(state_floats(call.value_dim)),
        all(keys_of_all(call)),
        queries(packed_queries) {
    const TileOrderScratch at(call.head_dim, call.value_dim);
    scores = reinterpret_cast<float*>(call.scratch + at.scores);
    weights = call.scratch + at.weights;
    sums = reinterpret_cast<float*>(call.scratch + at.sums);
    states = segments_before;
    spare_values = call.scratch + at.values;
    floats = call.scratch + at.floats;
  }

  [[nodiscard]] KeyRange visible(std::int64_t row, std::int64_t origin, std::int64_t count) const {
    return within({args.first_keys[row], args.end_keys[row]}, origin, count);
  }
  /// What all of some rows see.
  [[nodiscard]] KeyRange common(RowRange rows) const {
    KeyRange keys = all;
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      keys = intersect(keys, {args.first_keys[row], args.end_keys[row]});
    }
    return keys;
  }
  /// A row's scores of a strip, which take the place of those of the row kAttentionRows before.
  [[nodiscard]] float* scores_of(std::int64_t row) const {
    return scores + row % kAttentionRows * kScoreStride;
  }

  const AttentionArgs& args;
  std::int64_t padded_dim;
  std::int64_t stride;  // floats of a row of sums
  KeyRange all;         // from the lowest visible key to the highest
  const std::byte* queries;
  float* scores;  // [kAttentionRows, kScoreStride]
  std::byte* weights;
  float* sums;    // of this segment
  float* states;  // of the segments before
  std::byte* spare_values;
  std::byte* floats;
  alignas(64) float max[kRowsPerSegment];
  alignas(64) float totals[kRowsPerSegment][kLanes];  // sums of weights, in the
                                                      // lanes of add_pairs
};

inline void start_segment(Pass& pass) {
  for (std::int64_t row = 0; row < pass.args.num_rows; ++row) {
    pass.max[row] = -HUGE_VALF;
    store(pass.totals[row], broadcast(0));
    for (std::int64_t d = 0; d < pass.padded_dim; d += kLanes) {
      store(pass.sums + row * pass.stride + d, broadcast(0));
    }
  }
}

inline void finish_segment(Pass& pass) {
  for (std::int64_t row = 0; row < pass.args.num_rows; ++row) {
    float* const segment = pass.sums + row * pass.stride;
    max_of(segment, pass.padded_dim) = pass.max[row];
    total_of(segment, pass.padded_dim) = sum_lanes(load(pass.totals[row]));
    merge_state<BinaryScores>(segment, pass.states + row * pass.stride, pass.padded_dim);
  }
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
