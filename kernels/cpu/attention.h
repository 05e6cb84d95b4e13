#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/attention_kernel.h"
#include "kernels/cpu/attention_product.h"
#include "kernels/cpu/natural_log.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/format.h"

// Attention over the 16 lanes of an instruction set.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

struct KeyRange {
  std::int64_t first = 0;
  std::int64_t end = 0;

  [[nodiscard]] bool empty() const { return first >= end; }
};
inline KeyRange intersect(KeyRange a, KeyRange b) {
  return {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

/// Up to kTileRows query rows and their running softmax.
struct QueryGroup {
  std::int64_t first_row;  // of the call
  int num_rows;
  KeyRange visible[kTileRows];
  KeyRange all;          // from the lowest visible key to the highest
  float* queries;        // [head_dim][kTileRows]
  float* sums;           // [num_rows][padded value_dim]: sum of weight times value
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

inline void start_group(const AttentionArgs& args, QueryGroup& group) {
  const std::int64_t padded_dim = round_up(args.value_dim, kLanes);
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
    for (std::int64_t d = 0; d < padded_dim; d += kLanes) {
      store(group.sums + row * padded_dim + d, broadcast(0));
    }
  }
  store(group.max, broadcast(-HUGE_VALF));
  store(group.totals, broadcast(0));
}

/// From a place in a block to the same place in the next one, bytes. Each load asks for that, which
/// reads a cache that lies in memory faster than hardware prefetching alone does.
inline std::int64_t next_block_distance(const std::byte* const* blocks, const BlockWeights& block) {
  if (block.is_last) return 0;
  const std::byte* const* at = blocks + block.first_key / kKeysPerBlock;
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at[1]) -
                                   reinterpret_cast<std::uintptr_t>(at[0]));
}
template <typename Element>
const Element* block_start(const std::byte* const* blocks, const BlockWeights& block) {
  return reinterpret_cast<const Element*>(blocks[block.first_key / kKeysPerBlock]);
}

/// scores[row][key] = q k for the panels of the block that the group sees.
template <typename Element>
inline void score_block(const AttentionArgs& args, const QueryGroup& group, BlockWeights& block) {
  const std::int64_t first_panel = block.all.first / kKeysPerPanel;
  const std::int64_t end_panel = panel_count(block.all.end);
  const std::int64_t panel_size = args.head_dim * kKeysPerPanel;
  for (int row = 0; row < group.num_rows; ++row) {
    for (std::int64_t key = 0; key < kKeysPerBlock; key += kLanes) {
      store(block.scores + row * kKeysPerBlock + key, broadcast(0));
    }
  }
  const Product<Element> product = {
      .a = group.queries,
      .b = block_start<Element>(args.key_blocks, block) + first_panel * panel_size,
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
inline void weigh_block(std::int64_t padded_dim, QueryGroup& group, BlockWeights& block,
                        float scale) {
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
    float* sums = group.sums + row * padded_dim;
    for (std::int64_t d = 0; d < padded_dim; d += kLanes) {
      store(sums + d, load(sums + d) * broadcast(shrink[row]));
    }
  }
}

/// sums[row] += weights[row] values over the keys of `range`, for rows [row, row + num_rows).
template <typename Element>
inline void add_values(const AttentionArgs& args, const QueryGroup& group,
                       const BlockWeights& block, KeyRange range, int row, int num_rows) {
  if (range.empty()) return;
  const std::int64_t padded_dim = round_up(args.value_dim, kLanes);
  const Product<Element> product = {
      .a = block.scores + row * kKeysPerBlock + range.first,
      .b = block_start<Element>(args.value_blocks, block) + range.first * args.value_dim,
      .depth_stride = args.value_dim,
      .vector_stride = kLanes,
      .depth = range.end - range.first,
      .prefetch_bytes = next_block_distance(args.value_blocks, block),
      .c = group.sums + row * padded_dim,
      .c_stride = padded_dim};
  multiply<WeightLayout>(product, num_rows, args.value_dim);
}

/// Keys that all rows see are summed for all rows together, the few before and after row by row:
/// a hidden value may be anything, even NaN, and so must not be multiplied by a weight of 0.
template <typename Element>
inline void sum_values(const AttentionArgs& args, const QueryGroup& group,
                       const BlockWeights& block) {
  KeyRange common = block.all;
  for (int row = 0; row < group.num_rows; ++row) common = intersect(common, block.visible[row]);
  if (common.empty()) common = {kKeysPerBlock, kKeysPerBlock};
  for (int row = 0; row < group.num_rows; ++row) {
    const KeyRange before = intersect(block.visible[row], {0, common.first});
    add_values<Element>(args, group, block, before, row, 1);
  }
  add_values<Element>(args, group, block, common, 0, group.num_rows);
  for (int row = 0; row < group.num_rows; ++row) {
    const KeyRange after = intersect(block.visible[row], {common.end, kKeysPerBlock});
    add_values<Element>(args, group, block, after, row, 1);
  }
}

template <typename Element>
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
  score_block<Element>(args, group, block);
  weigh_block(round_up(args.value_dim, kLanes), group, block, args.scale);
  sum_values<Element>(args, group, block);
}

/// The sinks take their share: a step of the running softmax without values.
inline void add_sinks(const AttentionArgs& args, QueryGroup& group) {
  const std::int64_t padded_dim = round_up(args.value_dim, kLanes);
  float sinks[kLanes] = {};
  for (int row = 0; row < group.num_rows; ++row) sinks[row] = args.sinks[group.first_row + row];
  const Lanes new_max = max(load(sinks), load(group.max));
  float shrink[kLanes];
  store(shrink, exp(load(group.max) - new_max));
  store(group.totals, fma(load(group.totals), load(shrink), exp(load(sinks) - new_max)));
  store(group.max, new_max);
  for (int row = 0; row < group.num_rows; ++row) {
    float* sums = group.sums + row * padded_dim;
    for (std::int64_t d = 0; d < padded_dim; d += kLanes) {
      store(sums + d, load(sums + d) * broadcast(shrink[row]));
    }
  }
}

inline void finish_group(const AttentionArgs& args, QueryGroup& group) {
  if (args.sinks != nullptr) add_sinks(args, group);
  const std::int64_t padded_dim = round_up(args.value_dim, kLanes);
  for (int row = 0; row < group.num_rows; ++row) {
    const float* sums = group.sums + row * padded_dim;
    float* out = args.out + (group.first_row + row) * args.out_stride;
    for_each_vector(args.value_dim, [&](std::int64_t d, auto part) {
      store(out + d, load(sums + d) / broadcast(group.totals[row]), part);
    });
    if (args.log_sum_exps == nullptr) continue;
    args.log_sum_exps[group.first_row + row] =
        static_cast<float>(group.max[row] + natural_log(group.totals[row]));
  }
}

/// Up to kAttentionRows rows in one pass over the cache: a block of keys and values is used by all
/// groups while it is in the cache of the core.
template <typename Element>
void attend_rows(const AttentionArgs& args, std::int64_t first_row, std::int64_t num_rows) {
  constexpr std::int64_t kGroups = kAttentionRows / kTileRows;
  QueryGroup groups[kGroups];
  const std::int64_t padded_dim = round_up(args.value_dim, kLanes);
  const std::int64_t num_groups = (num_rows + kTileRows - 1) / kTileRows;
  KeyRange all = {args.first_keys[first_row], args.end_keys[first_row]};
  for (std::int64_t g = 0; g < num_groups; ++g) {  // of nearly equal size: 9 is 5 + 4, not 8 + 1
    QueryGroup& group = groups[g];
    const std::int64_t begin = g * num_rows / num_groups;
    group.first_row = first_row + begin;
    group.num_rows = static_cast<int>((g + 1) * num_rows / num_groups - begin);
    group.queries =
        reinterpret_cast<float*>(args.scratch) + g * kTileRows * (args.head_dim + padded_dim);
    group.sums = group.queries + kTileRows * args.head_dim;
    start_group(args, group);
    if (group.all.first < all.first) all.first = group.all.first;
    if (group.all.end > all.end) all.end = group.all.end;
  }
  const std::int64_t first_block = all.first / kKeysPerBlock * kKeysPerBlock;
  for (std::int64_t first_key = first_block; first_key < all.end; first_key += kKeysPerBlock) {
    for (std::int64_t g = 0; g < num_groups; ++g) attend_block<Element>(args, first_key, groups[g]);
  }
  for (std::int64_t g = 0; g < num_groups; ++g) {
    finish_group(args, groups[g]);
  }
}

template <typename Element>
void attend(const AttentionArgs& args) noexcept {
  constexpr std::int64_t kRows = kAttentionRows / kTileRows * kTileRows;
  for (std::int64_t row = 0; row < args.num_rows; row += kRows) {
    const std::int64_t rows_left = args.num_rows - row;
    attend_rows<Element>(args, row, rows_left < kRows ? rows_left : kRows);
  }
}

template <typename Element>
constexpr AttentionKernel make_attention_kernel(Isa isa, const char* name) {
  return {.isa = isa,
          .kind = sizeof(Element) == 2 ? AttentionKind::bf16 : AttentionKind::f32,
          .name = name,
          .attend = attend<Element>};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
