#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_gradient_bf16.h"
#include "kernels/cpu/attention_states.h"
#include "kernels/cpu/attention_values.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/bf16.h"

// Attention over a bf16 cache: q and weights are rounded to bf16, and both
// products are those of bf16 panels, in the order of the instruction set. The
// running softmax of a segment advances by strips of 256 keys. `Products` says
// how an instruction set packs rows and multiplies:
//
//   kRowsTogether                               rows that meet a strip before
//   the others do void begin(args)                            before a pass;
//   end() after it void pack_queries(pass) void multiply_queries(pass, rows,
//   PanelRun, meanwhile)
//       scores = q k of some panels of a block; calls meanwhile() between
//       steps, or never
//   WeightRow weight_row(pass, row)             has Lanes put(key, low, high):
//       rounds and keeps the weights of 32 keys from `key` of the strip on;
//       gives the sums of the rounded ones by pairs of neighbours
//   void add_values(pass, rows, ValueRuns, meanwhile)   sums += weights v
//   void add_values_of_row(pass, row, run)
//
// and what attention_gradient_bf16.h wants.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Rows that wait for memory rather than for products: what they read should be one stream.
inline constexpr std::int64_t kFewRows = 16;
inline constexpr std::int64_t kAskedBytes = 4096;

/// Rows [first, end) of a pass.
struct RowSpan {
  std::int64_t first;
  std::int64_t end;
};

/// Panels of a block of keys, one after the other.
struct PanelRun {
  const std::byte* panels;
  std::int64_t count;
  std::int64_t steps;      // of 32 elements of the head
  std::int64_t first_key;  // of the strip
};

/// Up to kAttentionRows rows on their way over the keys.
struct Pass {
  explicit Pass(const AttentionArgs& call)
      : args(call),
        padded_dim(padded_value_dim(call.value_dim)),
        stride(state_floats(call.value_dim)),
        all({call.first_keys[0], call.end_keys[0]}) {
    const TileOrderScratch at(call.head_dim, call.value_dim);
    queries = call.scratch + at.queries;
    scores = reinterpret_cast<float*>(call.scratch + at.scores);
    weights = call.scratch + at.weights;
    sums = reinterpret_cast<float*>(call.scratch + at.sums);
    states =
        call.states != nullptr ? call.states : reinterpret_cast<float*>(call.scratch + at.states);
    spare_values = call.scratch + at.values;
    for (std::int64_t row = 1; row < call.num_rows; ++row) {
      if (call.first_keys[row] < all.first) all.first = call.first_keys[row];
      if (call.end_keys[row] > all.end) all.end = call.end_keys[row];
    }
  }

  [[nodiscard]] KeyRange visible(std::int64_t row, std::int64_t origin, std::int64_t count) const {
    return within({args.first_keys[row], args.end_keys[row]}, origin, count);
  }

  const AttentionArgs& args;
  std::int64_t padded_dim;
  std::int64_t stride;  // floats of a row of sums
  KeyRange all;         // from the lowest visible key to the highest
  std::byte* queries;
  float* scores;  // [rows, kScoreStride]
  std::byte* weights;
  float* sums;    // of this segment
  float* states;  // of the segments before
  std::byte* spare_values;
  alignas(64) float max[kAttentionRows];
  alignas(64) float totals[kAttentionRows][kLanes];  // sums of weights, in the
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

/// The greatest of a row's scores that it sees; -infinity if it sees none.
inline float greatest_score(const float* scores, KeyRange visible) {
  constexpr int kChains = 4;
  const Lanes lowest = broadcast(-HUGE_VALF);
  Lanes greatest[kChains] = {lowest, lowest, lowest, lowest};
  const auto masked = [&](std::int64_t key) {
    const LaneMask seen = lanes_between(visible.first - key, visible.end - key);
    greatest[0] = max(greatest[0], select(seen, load(scores + key), lowest));
  };
  std::int64_t key = visible.first / kLanes * kLanes;
  if (key < visible.first) {
    masked(key);
    key += kLanes;
  }
  for (; key + kChains * kLanes <= visible.end; key += kChains * kLanes) {
    MOESAIC_UNROLL
    for (int i = 0; i < kChains; ++i) {
      greatest[i] = max(greatest[i], load(scores + key + i * kLanes));
    }
  }
  for (; key < visible.end; key += kLanes) masked(key);
  return max_lanes(max(max(greatest[0], greatest[1]), max(greatest[2], greatest[3])));
}

/// Weighs rows one after the other: scores become weights relative to the greatest, 0 where hidden,
/// over the steps of 32 keys that any row sees; what was summed before is brought to the new
/// greatest score. The step of the running softmax (Milakov and Gimelshein 2018, arXiv:1805.02867).
/// It can be done row by row between the steps of a product of other rows, so that a core that
/// multiplies by tiles has work for its vectors.
template <typename Products>
class RowWeigher {
 public:
  RowWeigher(Pass& pass, const KeyStrip& strip, RowSpan rows)
      : pass_(pass),
        strip_(strip),
        factor_(BinaryScores::factor(pass.args.scale)),
        row_(rows.first),
        end_(rows.end) {}

  /// The next row.
  void operator()() {
    if (row_ < end_) weigh_row();
  }
  void finish() {
    while (row_ < end_) weigh_row();
  }

 private:
  /// The greatest score of the next row is found while this one is weighed.
  void weigh_row() {
    const float greatest = is_begun_ ? greatest_ : greatest_of(row_);
    is_begun_ = true;
    if (row_ + 1 < end_) greatest_ = greatest_of(row_ + 1);
    const float old_max = pass_.max[row_];
    const float max = old_max > greatest ? old_max : greatest;
    const KeyRange seen = visible(row_);
    const Lanes total = weigh_keys(seen, max);
    if (!seen.empty()) add_total(total, old_max, max);
    ++row_;
  }

  [[nodiscard]] KeyRange visible(std::int64_t row) const {
    return pass_.visible(row, strip_.first_key, kKeysPerStrip);
  }
  [[nodiscard]] float greatest_of(std::int64_t row) const {
    return greatest_score(pass_.scores + row * kScoreStride, visible(row)) * factor_;
  }

  [[nodiscard]] Lanes weigh_keys(KeyRange seen, float max) const {
    const Lanes factor = broadcast(factor_);
    const Lanes greatest = broadcast(max);
    const float* const scores = pass_.scores + row_ * kScoreStride;
    const auto weights = Products::weight_row(pass_, row_);
    const auto weight = [&](std::int64_t key) {
      return BinaryScores::weight(load(scores + key) * factor - greatest);
    };
    const auto masked = [&](std::int64_t key) {
      return select(lanes_between(seen.first - key, seen.end - key), weight(key), broadcast(0));
    };
    Lanes total = broadcast(0);
    for (std::int64_t key = strip_.steps.first; key < strip_.steps.end; key += kStepDepth) {
      if (key >= seen.first && key + kStepDepth <= seen.end) {
        total = total + weights.put(key, weight(key), weight(key + kLanes));
      } else {
        total = total + weights.put(key, masked(key), masked(key + kLanes));
      }
    }
    return total;
  }

  /// The row has seen keys of the strip.
  void add_total(Lanes total, float old_max, float max) const {
    float* const totals = pass_.totals[row_];
    if (max == old_max) {  // what was summed would be multiplied by 1
      store(totals, load(totals) + total);
      return;
    }
    pass_.max[row_] = max;
    const Lanes shrink = BinaryScores::weight(broadcast(old_max) - broadcast(max));
    store(totals, fma(load(totals), shrink, total));
    float* const sums = pass_.sums + row_ * pass_.stride;
    for (std::int64_t d = 0; d < pass_.padded_dim; d += kLanes) {
      store(sums + d, load(sums + d) * shrink);
    }
  }

  Pass& pass_;
  const KeyStrip& strip_;
  float factor_;
  std::int64_t row_;
  std::int64_t end_;
  bool is_begun_ = false;
  float greatest_ = 0;  // of row_
};

/// Asks for the start of a block that comes soon, where few rows wait for memory all the time:
/// prefetching within a block is up to the products.
inline void ask_for(const Pass& pass, const std::byte* const* blocks, std::int64_t key,
                    std::int64_t bytes) {
  if (pass.args.num_rows > kFewRows || key >= pass.all.end) return;
  const std::byte* const block = blocks[key / kKeysPerBlock];
  for (std::int64_t at = 0; at < bytes; at += 64) prefetch(block + at);
}

template <typename Products>
inline void score_strip(const Pass& pass, const KeyStrip& strip, RowSpan rows,
                        RowWeigher<Products>& meanwhile) {
  const std::int64_t panel_bytes = bf16_format::panel_bytes(pass.args.head_dim);
  for (std::int64_t key = 0; key < kKeysPerStrip; key += kKeysPerBlock) {
    const KeyRange seen = within(strip.seen, key, kKeysPerBlock);
    if (seen.empty()) continue;
    const std::int64_t first = seen.first / kKeysPerPanel;
    const std::int64_t end = (seen.end + kKeysPerPanel - 1) / kKeysPerPanel;
    const std::int64_t next = strip.first_key + key + kKeysPerBlock;
    if (key + kKeysPerBlock < strip.seen.end) {
      ask_for(pass, pass.args.key_blocks, next, kAskedBytes);
    } else {  // while the rows are weighed
      ask_for(pass, pass.args.value_blocks, strip.first_key + strip.seen.first, 2 * kAskedBytes);
    }
    const std::byte* block = pass.args.key_blocks[(strip.first_key + key) / kKeysPerBlock];
    const PanelRun run{.panels = block + first * panel_bytes,
                       .count = end - first,
                       .steps = round_up(pass.args.head_dim, kStepDepth) / kStepDepth,
                       .first_key = key + first * kKeysPerPanel};
    Products::multiply_queries(pass, rows, run, meanwhile);
  }
}

/// Whether each of the rows sees all keys of the run.
inline bool all_see(const Pass& pass, RowSpan rows, std::int64_t first_key, KeyRange keys) {
  for (std::int64_t row = rows.first; row < rows.end; ++row) {
    const KeyRange visible = pass.visible(row, first_key, kKeysPerBlock);
    if (visible.first > keys.first || visible.end < keys.end) return false;
  }
  return true;
}

/// A hidden value may be anything, even NaN, which a weight of 0 does not hide:
/// where some row does not see all of the keys, and not all values are finite,
/// rows meet values of their own in which hidden ones are 0.
template <typename Products>
inline void add_strip(Pass& pass, const KeyStrip& strip, RowSpan rows,
                      RowWeigher<Products>& meanwhile) {
  ValueRuns runs;
  for (std::int64_t key = 0; key < kKeysPerStrip; key += kKeysPerBlock) {
    const KeyRange steps = within(strip.steps, key, kKeysPerBlock);
    if (steps.empty()) continue;
    const std::int64_t first_key = strip.first_key + key;
    const ValueRun run{pass.args.value_blocks[first_key / kKeysPerBlock], steps, key};
    const bool is_last = key + kKeysPerBlock >= strip.seen.end;
    ask_for(pass, is_last ? pass.args.key_blocks : pass.args.value_blocks,
            first_key + kKeysPerBlock, kAskedBytes);
    if (all_see(pass, rows, first_key, steps) || are_finite(run, pass.padded_dim)) {
      runs.run[runs.count++] = run;
      if (pass.args.num_rows > kFewRows) continue;
      Products::add_values(pass, rows, runs, meanwhile);  // one block, one stream
      runs.count = 0;
      continue;
    }
    Products::add_values(pass, rows, runs,
                         meanwhile);  // sums go on in ascending order
    runs.count = 0;
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      copy_visible(run, pass.padded_dim, pass.visible(row, first_key, kKeysPerBlock),
                   pass.spare_values);
      Products::add_values_of_row(pass, row, {pass.spare_values, run.keys, run.strip_key});
    }
  }
  Products::add_values(pass, rows, runs, meanwhile);
}

/// In two parts of the rows, if there are as many: one is weighed while the
/// other is multiplied.
template <typename Products>
inline void attend_strip(Pass& pass, std::int64_t first_key) {
  const KeyRange seen = within(pass.all, first_key, kKeysPerStrip);
  const KeyStrip strip{
      .first_key = first_key,
      .seen = seen,
      .steps = {seen.first / kStepDepth * kStepDepth, round_up(seen.end, kStepDepth)}};
  const std::int64_t num_rows = pass.args.num_rows;
  const RowSpan first{0, num_rows < Products::kRowsTogether ? num_rows : Products::kRowsTogether};
  const RowSpan second{first.end, num_rows};
  RowWeigher<Products> nothing(pass, strip, {0, 0});
  RowWeigher<Products> weigh_first(pass, strip, first);
  RowWeigher<Products> weigh_second(pass, strip, second);
  score_strip(pass, strip, first, nothing);
  if (second.first < second.end) score_strip(pass, strip, second, weigh_first);
  weigh_first.finish();
  add_strip(pass, strip, first, weigh_second);
  weigh_second.finish();
  if (second.first < second.end) add_strip(pass, strip, second, nothing);
}

template <typename Products>
inline void run_pass(const AttentionArgs& args) {
  Pass pass(args);
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    total_of(pass.states + row * pass.stride, pass.padded_dim) = 0;
  }
  Products::begin(args);
  Products::pack_queries(pass);
  start_segment(pass);
  const std::int64_t first_strip = pass.all.first / kKeysPerStrip * kKeysPerStrip;
  for (std::int64_t key = first_strip; key < pass.all.end; key += kKeysPerStrip) {
    if (key % kKeysPerSegment == 0 && key > first_strip) {
      finish_segment(pass);
      start_segment(pass);
    }
    attend_strip<Products>(pass, key);
  }
  finish_segment(pass);
  Products::end();
  if (args.states != nullptr) return;
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    finish_row<BinaryScores>(output_of(args), row, pass.states + row * pass.stride);
  }
}

// Calls that are not inlined, so that no arithmetic moves across the change of
// MXCSR.
template <typename Products>
[[gnu::noinline]] void run_passes(const AttentionArgs& args) {
  for (std::int64_t row = 0; row < args.num_rows; row += kAttentionRows) {
    run_pass<Products>(rows_of(args, row));
  }
}
template <typename Products>
void attend_bf16(const AttentionArgs& args) noexcept {
  const TileEnvironment environment;
  run_passes<Products>(args);
}

[[gnu::noinline]] inline void merge_all_rows(const AttentionMerge& merge) {
  merge_rows<BinaryScores>(merge);
}
inline void merge_bf16(const AttentionMerge& merge) noexcept {
  const TileEnvironment environment;
  merge_all_rows(merge);
}

template <typename Products>
constexpr AttentionKernel make_bf16_attention(Isa isa, const char* name) {
  return {.isa = isa,
          .kind = AttentionKind::bf16,
          .name = name,
          .attend = attend_bf16<Products>,
          .merge = merge_bf16,
          .differentiate = differentiate_bf16<Products>};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
