#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/rounding.h"
#include "kernels/cpu/attention_gradient_bf16.h"
#include "kernels/cpu/attention_pass.h"
#include "kernels/cpu/attention_weights.h"
#include "kernels/cpu/between_products.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/bf16.h"

// Attention over a bf16 cache: q and weights are rounded to bf16, and both
// products are those of bf16 panels, in the order of the instruction set. The
// running softmax of a segment advances by strips of 256 keys. `Products` says
// how an instruction set packs rows and multiplies:
//
//   kRowsOfPass, kRowsInTurn              rows of a pass; of its groups (attend_strips)
//   void pack_queries(args, bytes)        of all rows; packed_query(args, bytes, row) says where
//       those from a pass's first row on are
//   void begin(args)                      before a pass; end() after it
//   void multiply_queries(pass, RowRange, PanelRun, between)
//       scores = q k of some panels of a block
//   WeightRow weight_row(pass, row)       has Lanes put(key, low, high): rounds and keeps the
//       weights of 32 keys from `key` of the strip on; gives the sums of the rounded ones by pairs
//       of neighbours. They may take the place of the scores of these keys
//   void add_values(pass, RowRange, ValueRuns, between)
//       sums += weights v
//   void add_values_of_row(pass, row, run)
//
// and what attention_gradient_bf16.h wants. If its products leave vector units idle, groups have
// fewer rows than kAttentionRows, it calls between() after products, and has
//
//   Lanes weigh_step(scores, factor, max)  what put() does, from 32 scores whose place weights take

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// A group of rows that meets a strip of keys.
struct Meeting {
  KeyStrip strip;
  RowRange rows;
  KeyRange common;  // what all of them see of the strip
};

/// Asks for the start of a block that comes soon, where few rows wait for memory all the time:
/// prefetching within a block is up to the products.
inline void ask_for(const Pass& pass, const std::byte* const* blocks, std::int64_t key,
                    std::int64_t bytes) {
  if (pass.args.num_rows > kFewRows || key >= pass.all.end) return;
  const std::byte* const block = blocks[key / kKeysPerBlock];
  for (std::int64_t at = 0; at < bytes; at += 64) prefetch(block + at);
}

template <typename Products, typename Between>
inline void score_strip(const Pass& pass, const Meeting& meeting, Between& between) {
  const auto& [strip, rows, common] = meeting;
  if (rows.empty()) return;
  const std::int64_t panel_bytes = bf16_format::panel_bytes(pass.args.head_dim);
  for (std::int64_t key = 0; key < kKeysPerStrip; key += kKeysPerBlock) {
    const KeyRange seen = within(strip.seen, key, kKeysPerBlock);
    if (seen.empty()) continue;
    const std::int64_t first = seen.first / kKeysPerPanel;
    const std::int64_t end = divide_up(seen.end, kKeysPerPanel);
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
    Products::multiply_queries(pass, rows, run, between);
  }
}

/// A hidden value may be anything, even NaN, which a weight of 0 does not hide:
/// where some row does not see all of the keys, and not all values are finite,
/// rows meet values of their own in which hidden ones are 0.
template <typename Products, typename Between>
inline void add_strip(const Pass& pass, const Meeting& meeting, Between& between) {
  const auto& [strip, rows, common] = meeting;
  if (rows.empty()) return;
  ValueRuns runs;
  for (std::int64_t key = 0; key < kKeysPerStrip; key += kKeysPerBlock) {
    const KeyRange steps = within(strip.steps, key, kKeysPerBlock);
    if (steps.empty()) continue;
    const std::int64_t first_key = strip.first_key + key;
    const ValueRun run{pass.args.value_blocks[first_key / kKeysPerBlock], steps, key};
    const bool is_last = key + kKeysPerBlock >= strip.seen.end;
    ask_for(pass, is_last ? pass.args.key_blocks : pass.args.value_blocks,
            first_key + kKeysPerBlock, kAskedBytes);
    const bool all_see = common.first <= key + steps.first && common.end >= key + steps.end;
    if (all_see || are_finite(run, pass.padded_dim)) {
      runs.run[runs.count++] = run;
      if (pass.args.num_rows > kFewRows) continue;
      Products::add_values(pass, rows, runs, between);  // one block, one stream
      runs.count = 0;
      continue;
    }
    Products::add_values(pass, rows, runs, between);  // sums go on in ascending order
    runs.count = 0;
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      copy_visible(run, pass.padded_dim, pass.visible(row, first_key, kKeysPerBlock),
                   pass.spare_values);
      Products::add_values_of_row(pass, row, {pass.spare_values, run.keys, run.strip_key});
    }
  }
  Products::add_values(pass, rows, runs, between);
}

/// Of a segment's keys, which may end before it.
inline KeyStrip strip_of(KeyRange keys, std::int64_t first_key) {
  const KeyRange seen = within(keys, first_key, kKeysPerStrip);
  return {.first_key = first_key,
          .seen = seen,
          .steps = {seen.first / kStepDepth * kStepDepth, round_up(seen.end, kStepDepth)}};
}

/// Weighs some rows of a strip, and multiplies others by multiply(between).
template <typename Products, typename Multiply>
inline void weigh_rows(Pass& pass, const Meeting& meeting, Multiply multiply) {
  const auto& [strip, rows, common] = meeting;
  if constexpr (Products::kRowsInTurn < kAttentionRows) {
    if (common.first <= strip.steps.first && common.end >= strip.steps.end) {
      return weigh_between<Products>(pass, strip, rows, multiply);
    }
  }
  weigh_strip<Products>(pass, strip, rows);
  NothingBetween nothing;
  multiply(nothing);
}

/// Groups of rows take turns at each strip: while one is weighed, that of the meeting before is
/// multiplied with its values, and that of the next with its keys. A single group takes turns with
/// an empty one.
template <typename Products>
inline void attend_strips(Pass& pass, KeyRange keys) {
  const std::int64_t num_rows = pass.args.num_rows;
  const std::int64_t turns = round_up(num_rows, 2 * Products::kRowsInTurn);
  const auto meeting_of = [&](const KeyStrip& strip, std::int64_t first) -> Meeting {
    const RowRange rows{first, std::min(first + Products::kRowsInTurn, num_rows)};
    return {strip, rows, within(pass.common(rows), strip.first_key, kKeysPerStrip)};
  };
  const auto next_of = [&](const Meeting& at) {
    const std::int64_t first = at.rows.first + Products::kRowsInTurn;
    if (first < turns) return meeting_of(at.strip, first);
    return meeting_of(strip_of(keys, at.strip.first_key + kKeysPerStrip), 0);
  };
  NothingBetween nothing;
  Meeting before{};
  Meeting at = meeting_of(strip_of(keys, keys.first / kKeysPerStrip * kKeysPerStrip), 0);
  score_strip<Products>(pass, at, nothing);
  while (!at.strip.seen.empty()) {
    const Meeting next = next_of(at);
    weigh_rows<Products>(pass, at, [&](auto& between) {
      add_strip<Products>(pass, before, between);
      score_strip<Products>(pass, next, between);
    });
    before = at;
    at = next;
  }
  add_strip<Products>(pass, before, nothing);
}

/// One pass over the keys of a segment, which go into the states of the rows.
template <typename Products>
inline void attend_segment(Pass& pass, std::int64_t segment) {
  const KeyRange keys = intersect(pass.all, {segment, segment + kKeysPerSegment});
  if (keys.empty()) return;
  Products::begin(pass.args);
  start_segment(pass);
  attend_strips<Products>(pass, keys);
  finish_segment(pass);
  Products::end();
}

/// Up to kRowsPerSegment rows.
template <typename Products>
inline void attend_rows(const AttentionArgs& args) {
  const std::int64_t stride = state_floats(args.value_dim);
  const TileOrderScratch at(args.head_dim, args.value_dim);
  float* const states =
      args.states != nullptr ? args.states : reinterpret_cast<float*>(args.scratch + at.states);
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    total_of(states + row * stride, padded_value_dim(args.value_dim)) = 0;
  }
  std::byte* const queries = args.scratch + at.queries;
  Products::pack_queries(args, queries);
  const KeyRange all = keys_of_all(args);
  const std::int64_t first_segment = all.first / kKeysPerSegment * kKeysPerSegment;
  for (std::int64_t key = first_segment; key < all.end; key += kKeysPerSegment) {
    for (std::int64_t row = 0; row < args.num_rows; row += Products::kRowsOfPass) {
      const AttentionArgs rows = rows_of(args, row, Products::kRowsOfPass);
      Pass pass(rows, Products::packed_query(args, queries, row), states + row * stride);
      attend_segment<Products>(pass, key);
    }
  }
  if (args.states != nullptr) return;
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    finish_row<BinaryScores>(output_of(args), row, states + row * stride);
  }
}

// Calls that are not inlined, so that no arithmetic moves across the change of
// MXCSR.
template <typename Products>
[[gnu::noinline]] void attend_all_rows(const AttentionArgs& args) {
  for (std::int64_t row = 0; row < args.num_rows; row += kRowsPerSegment) {
    attend_rows<Products>(rows_of(args, row, kRowsPerSegment));
  }
}
template <typename Products>
void attend_bf16(const AttentionArgs& args) noexcept {
  const TileEnvironment environment;
  attend_all_rows<Products>(args);
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
