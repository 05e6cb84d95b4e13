#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/rounding.h"
#include "kernels/cpu/attention_gradient_bf16.h"
#include "kernels/cpu/attention_pass.h"
#include "kernels/cpu/attention_weights.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/bf16.h"

// Attention over a bf16 cache: q and weights are rounded to bf16, and both
// products are those of bf16 panels, in the order of the instruction set. The
// running softmax of a segment advances by strips of 256 keys. `Products` says
// how an instruction set packs rows and multiplies:
//
//   void begin(args)                       before a pass; end() after it
//   void pack_queries(pass)
//   void multiply_queries(pass, PanelRun)   scores = q k of some panels of a block
//   WeightRow weight_row(pass, row)         has Lanes put(key, low, high): rounds and keeps the
//       weights of 32 keys from `key` of the strip on; gives the sums of the rounded ones by pairs
//       of neighbours. They may take the place of the scores of these keys
//   void add_values(pass, ValueRuns)        sums += weights v
//   void add_values_of_row(pass, row, run)
//
// and what attention_gradient_bf16.h wants.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Asks for the start of a block that comes soon, where few rows wait for memory all the time:
/// prefetching within a block is up to the products.
inline void ask_for(const Pass& pass, const std::byte* const* blocks, std::int64_t key,
                    std::int64_t bytes) {
  if (pass.args.num_rows > kFewRows || key >= pass.all.end) return;
  const std::byte* const block = blocks[key / kKeysPerBlock];
  for (std::int64_t at = 0; at < bytes; at += 64) prefetch(block + at);
}

template <typename Products>
inline void score_strip(const Pass& pass, const KeyStrip& strip) {
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
    Products::multiply_queries(pass, run);
  }
}

/// A hidden value may be anything, even NaN, which a weight of 0 does not hide:
/// where some row does not see all of the keys, and not all values are finite,
/// rows meet values of their own in which hidden ones are 0.
template <typename Products>
inline void add_strip(Pass& pass, const KeyStrip& strip) {
  ValueRuns runs;
  for (std::int64_t key = 0; key < kKeysPerStrip; key += kKeysPerBlock) {
    const KeyRange steps = within(strip.steps, key, kKeysPerBlock);
    if (steps.empty()) continue;
    const std::int64_t first_key = strip.first_key + key;
    const ValueRun run{pass.args.value_blocks[first_key / kKeysPerBlock], steps, key};
    const bool is_last = key + kKeysPerBlock >= strip.seen.end;
    ask_for(pass, is_last ? pass.args.key_blocks : pass.args.value_blocks,
            first_key + kKeysPerBlock, kAskedBytes);
    const bool all_see =
        pass.common.first <= first_key + steps.first && pass.common.end >= first_key + steps.end;
    if (all_see || are_finite(run, pass.padded_dim)) {
      runs.run[runs.count++] = run;
      if (pass.args.num_rows > kFewRows) continue;
      Products::add_values(pass, runs);  // one block, one stream
      runs.count = 0;
      continue;
    }
    Products::add_values(pass, runs);  // sums go on in ascending order
    runs.count = 0;
    for (std::int64_t row = 0; row < pass.args.num_rows; ++row) {
      copy_visible(run, pass.padded_dim, pass.visible(row, first_key, kKeysPerBlock),
                   pass.spare_values);
      Products::add_values_of_row(pass, row, {pass.spare_values, run.keys, run.strip_key});
    }
  }
  Products::add_values(pass, runs);
}

template <typename Products>
inline void attend_strip(Pass& pass, std::int64_t first_key) {
  const KeyRange seen = within(pass.all, first_key, kKeysPerStrip);
  const KeyStrip strip{
      .first_key = first_key,
      .seen = seen,
      .steps = {seen.first / kStepDepth * kStepDepth, round_up(seen.end, kStepDepth)}};
  score_strip<Products>(pass, strip);
  weigh_strip<Products>(pass, strip);
  add_strip<Products>(pass, strip);
}

/// One pass over the keys of a segment, which go into the states of the rows.
template <typename Products>
inline void attend_segment(const AttentionArgs& args, float* states, std::int64_t segment) {
  Pass pass(args, states);
  const KeyRange keys = intersect(pass.all, {segment, segment + kKeysPerSegment});
  if (keys.empty()) return;
  Products::begin(args);
  Products::pack_queries(pass);
  start_segment(pass);
  const std::int64_t first_strip = keys.first / kKeysPerStrip * kKeysPerStrip;
  for (std::int64_t key = first_strip; key < keys.end; key += kKeysPerStrip) {
    attend_strip<Products>(pass, key);
  }
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
  const KeyRange all = keys_of_all(args);
  const std::int64_t first_segment = all.first / kKeysPerSegment * kKeysPerSegment;
  for (std::int64_t key = first_segment; key < all.end; key += kKeysPerSegment) {
    for (std::int64_t row = 0; row < args.num_rows; row += kAttentionRows) {
      attend_segment<Products>(rows_of(args, row), states + row * stride, key);
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
