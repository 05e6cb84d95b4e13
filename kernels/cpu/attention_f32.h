#pragma once

#include <cmath>
#include <cstdint>

#include "base/rounding.h"
#include "kernels/attention_kernel.h"
#include "kernels/cpu/attention_gradient.h"
#include "kernels/cpu/attention_product.h"
#include "kernels/cpu/attention_states.h"
#include "kernels/cpu/vector_math.h"

// Attention in f32 over the 16 lanes of an instruction set. The running softmax of a segment
// advances by blocks of 64 keys.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Up to kTileRows query rows and their running softmax.
struct QueryGroup {
  std::int64_t first_row;  // of the call
  int num_rows;
  KeyRange visible[kTileRows];
  KeyRange all;         // from the lowest visible key to the highest
  float* queries;       // [head_dim][kTileRows]
  float* sums;          // [num_rows][state_floats]: sum of weight times value
  std::int64_t stride;  // state_floats
  std::int64_t padded_dim;
  float max[kLanes];     // [kTileRows]
  float totals[kLanes];  // [kTileRows]: sum of weights
};

/// One block of keys as one group of rows sees it.
struct BlockWeights {
  std::int64_t first_key;
  bool is_last;                 // of those that the rows see
  KeyRange visible[kTileRows];  // within the block, positions from first_key
  KeyRange all;                 // of the group
  alignas(64) float scores[kTileRows * kKeysPerBlock];  // then weights
};

/// The softmax of a segment begins.
inline void start_segment(QueryGroup& group) {
  for (int row = 0; row < group.num_rows; ++row) {
    for (std::int64_t d = 0; d < group.padded_dim; d += kLanes) {
      store(group.sums + row * group.stride + d, broadcast(0));
    }
  }
  store(group.max, broadcast(-HUGE_VALF));
  store(group.totals, broadcast(0));
}

/// What the segment has come to joins `states` of the rows of the call.
inline void finish_segment(QueryGroup& group, float* states) {
  for (int row = 0; row < group.num_rows; ++row) {
    float* const segment = group.sums + row * group.stride;
    max_of(segment, group.padded_dim) = group.max[row];
    total_of(segment, group.padded_dim) = group.totals[row];
    merge_state<NaturalScores>(segment, states + (group.first_row + row) * group.stride,
                               group.padded_dim);
  }
}

inline void start_group(const AttentionArgs& args, QueryGroup& group) {
  group.all = {args.first_keys[group.first_row], args.end_keys[group.first_row]};
  for (int row = 0; row < group.num_rows; ++row) {
    const std::int64_t index = group.first_row + row;
    const KeyRange range = {args.first_keys[index], args.end_keys[index]};
    group.visible[row] = range;
    if (range.first < group.all.first) group.all.first = range.first;
    if (range.end > group.all.end) group.all.end = range.end;
    const float* query = args.queries + index * args.query_stride;
    for (std::int64_t d = 0; d < args.head_dim; ++d) {
      group.queries[QueryLayout::index(row, d)] = query[d];
    }
  }
  start_segment(group);
}

/// From a place in a block to the same place in the next one, bytes. Each load asks for that, which
/// reads a cache that lies in memory faster than hardware prefetching alone does.
inline std::int64_t next_block_distance(const std::byte* const* blocks, const BlockWeights& block) {
  if (block.is_last) return 0;
  const std::byte* const* at = blocks + block.first_key / kKeysPerBlock;
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at[1]) -
                                   reinterpret_cast<std::uintptr_t>(at[0]));
}
inline const float* block_start(const std::byte* const* blocks, const BlockWeights& block) {
  return reinterpret_cast<const float*>(blocks[block.first_key / kKeysPerBlock]);
}

/// scores[row][key] = q k for the panels of the block that the group sees.
inline void score_block(const AttentionArgs& args, const QueryGroup& group, BlockWeights& block) {
  const std::int64_t first_panel = block.all.first / kKeysPerPanel;
  const std::int64_t end_panel = panel_count(block.all.end);
  const std::int64_t panel_size = args.head_dim * kKeysPerPanel;
  for (int row = 0; row < group.num_rows; ++row) {
    for (std::int64_t key = 0; key < kKeysPerBlock; key += kLanes) {
      store(block.scores + row * kKeysPerBlock + key, broadcast(0));
    }
  }
  const Product<float> product = {
      .a = group.queries,
      .b = block_start(args.key_blocks, block) + first_panel * panel_size,
      .depth_stride = kKeysPerPanel,
      .vector_stride = panel_size,
      .depth = args.head_dim,
      .prefetch_bytes = next_block_distance(args.key_blocks, block),
      .c = block.scores + first_panel * kKeysPerPanel,
      .c_stride = kKeysPerBlock};
  multiply<QueryLayout>(product, group.num_rows, (end_panel - first_panel) * kKeysPerPanel);
}

/// Scales a row's scores, hides what it must not see, and returns the greatest.
inline float mask_scores(float* scores, KeyRange visible, float scale) {
  Lanes greatest = broadcast(-HUGE_VALF);
  for (std::int64_t key = 0; key < kKeysPerBlock; key += kLanes) {
    const LaneMask seen = lanes_between(visible.first - key, visible.end - key);
    const Lanes score = select(seen, load(scores + key) * broadcast(scale), broadcast(-HUGE_VALF));
    store(scores + key, score);
    greatest = max(greatest, score);
  }
  return max_lanes(greatest);
}

/// scores -> exp(score - max), 0 where hidden; returns their sum.
inline float exponentiate_scores(float* scores, float max) {
  Lanes sum = broadcast(0);
  for (std::int64_t key = 0; key < kKeysPerBlock; key += kLanes) {
    const Lanes weight = exp(load(scores + key) - broadcast(max));
    store(scores + key, weight);
    sum = sum + weight;
  }
  return sum_lanes(sum);
}

/// The step of the running softmax (Milakov and Gimelshein 2018, arXiv:1805.02867): scores become
/// weights relative to the new maximum, and what was summed before is brought to it. Rows that see
/// no key of the block stay as they are.
inline void weigh_block(QueryGroup& group, BlockWeights& block, float scale) {
  float new_max[kLanes];
  store(new_max, load(group.max));
  for (int row = 0; row < group.num_rows; ++row) {
    if (block.visible[row].empty()) continue;
    const float greatest =
        mask_scores(block.scores + row * kKeysPerBlock, block.visible[row], scale);
    if (!(new_max[row] > greatest)) new_max[row] = greatest;
  }
  float shrink[kLanes];
  store(shrink, exp(load(group.max) - load(new_max)));
  for (int row = 0; row < group.num_rows; ++row) {
    if (block.visible[row].empty()) continue;
    const float total = exponentiate_scores(block.scores + row * kKeysPerBlock, new_max[row]);
    group.totals[row] = std::fma(group.totals[row], shrink[row], total);
    group.max[row] = new_max[row];
    if (shrink[row] == 1.0F) continue;  // the products would be exact
    float* sums = group.sums + row * group.stride;
    for (std::int64_t d = 0; d < group.padded_dim; d += kLanes) {
      store(sums + d, load(sums + d) * broadcast(shrink[row]));
    }
  }
}

/// sums[row] += weights[row] values over the keys of `range`, for rows [row, row + num_rows).
inline void add_values(const AttentionArgs& args, const QueryGroup& group,
                       const BlockWeights& block, KeyRange range, int row, int num_rows) {
  if (range.empty()) return;
  const Product<float> product = {
      .a = block.scores + row * kKeysPerBlock + range.first,
      .b = block_start(args.value_blocks, block) + range.first * args.value_dim,
      .depth_stride = args.value_dim,
      .vector_stride = kLanes,
      .depth = range.end - range.first,
      .prefetch_bytes = next_block_distance(args.value_blocks, block),
      .c = group.sums + row * group.stride,
      .c_stride = group.stride};
  multiply<WeightLayout>(product, num_rows, args.value_dim);
}

/// Keys that all rows see are summed for all rows together, the few before and after row by row:
/// a hidden value may be anything, even NaN, and so must not be multiplied by a weight of 0.
inline void sum_values(const AttentionArgs& args, const QueryGroup& group,
                       const BlockWeights& block) {
  KeyRange common = block.all;
  for (int row = 0; row < group.num_rows; ++row) common = intersect(common, block.visible[row]);
  if (common.empty()) common = {kKeysPerBlock, kKeysPerBlock};
  for (int row = 0; row < group.num_rows; ++row) {
    const KeyRange before = intersect(block.visible[row], {0, common.first});
    add_values(args, group, block, before, row, 1);
  }
  add_values(args, group, block, common, 0, group.num_rows);
  for (int row = 0; row < group.num_rows; ++row) {
    const KeyRange after = intersect(block.visible[row], {common.end, kKeysPerBlock});
    add_values(args, group, block, after, row, 1);
  }
}

inline void attend_block(const AttentionArgs& args, std::int64_t first_key, QueryGroup& group) {
  BlockWeights block;
  block.first_key = first_key;
  const auto within_block = [&](KeyRange range) {
    return intersect({range.first - first_key, range.end - first_key}, {0, kKeysPerBlock});
  };
  block.all = within_block(group.all);
  block.is_last = first_key + kKeysPerBlock >= group.all.end;
  if (block.all.empty()) return;
  for (int row = 0; row < group.num_rows; ++row) {
    block.visible[row] = within_block(group.visible[row]);
  }
  score_block(args, group, block);
  weigh_block(group, block, args.scale);
  sum_values(args, group, block);
}

/// Up to kAttentionRows rows, in groups that use a block of keys and values while it is in the
/// cache of the core.
struct RowGroups {
  static constexpr std::int64_t kMost = kAttentionRows / kTileRows + 1;
  QueryGroup groups[kMost];
  std::int64_t count;
  KeyRange all;

  void start(const AttentionArgs& args, std::int64_t num_rows) {
    const std::int64_t stride = state_floats(args.value_dim);
    count = divide_up(num_rows, kTileRows);
    all = {args.first_keys[0], args.end_keys[0]};
    auto* scratch = reinterpret_cast<float*>(args.scratch);
    for (std::int64_t g = 0; g < count; ++g) {  // of nearly equal size: 9 is 5 + 4, not 8 + 1
      QueryGroup& group = groups[g];
      group.first_row = g * num_rows / count;
      group.num_rows = static_cast<int>((g + 1) * num_rows / count - group.first_row);
      group.stride = stride;
      group.padded_dim = padded_value_dim(args.value_dim);
      group.sums = scratch;
      group.queries = scratch + kTileRows * stride;
      scratch = group.queries + kTileRows * args.head_dim;
      start_group(args, group);
      if (group.all.first < all.first) all.first = group.all.first;
      if (group.all.end > all.end) all.end = group.all.end;
    }
  }
};

/// All of a call with up to kAttentionRows rows.
inline void attend_rows(const AttentionArgs& args, float* states) {
  const std::int64_t stride = state_floats(args.value_dim);
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    total_of(states + row * stride, padded_value_dim(args.value_dim)) = 0;
  }
  RowGroups rows;
  rows.start(args, args.num_rows);
  const std::int64_t first_block = rows.all.first / kKeysPerBlock * kKeysPerBlock;
  for (std::int64_t key = first_block; key < rows.all.end; key += kKeysPerBlock) {
    const bool new_segment = key % kKeysPerSegment == 0 && key > first_block;
    for (std::int64_t g = 0; g < rows.count; ++g) {
      QueryGroup& group = rows.groups[g];
      if (new_segment) {
        finish_segment(group, states);
        start_segment(group);
      }
      attend_block(args, key, group);
    }
  }
  for (std::int64_t g = 0; g < rows.count; ++g) finish_segment(rows.groups[g], states);
  if (args.states != nullptr) return;
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    finish_row<NaturalScores>(output_of(args), row, states + row * stride);
  }
}

inline void attend_f32(const AttentionArgs& args) noexcept {
  const std::int64_t stride = state_floats(args.value_dim);
  float* const merged =
      reinterpret_cast<float*>(args.scratch + TileOrderScratch(args.head_dim, args.value_dim).end) -
      kAttentionRows * stride;
  for (std::int64_t row = 0; row < args.num_rows; row += kAttentionRows) {
    const AttentionArgs part = rows_of(args, row);
    attend_rows(part, part.states != nullptr ? part.states : merged);
  }
}

inline void merge_f32_rows(const AttentionMerge& merge) noexcept {
  merge_rows<NaturalScores>(merge);
}

constexpr AttentionKernel make_f32_attention(Isa isa, const char* name) {
  return {.isa = isa,
          .kind = AttentionKind::f32,
          .name = name,
          .attend = attend_f32,
          .merge = merge_f32_rows,
          .differentiate = differentiate_f32};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
