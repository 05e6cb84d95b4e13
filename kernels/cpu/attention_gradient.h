#pragma once

#include <cmath>
#include <cstdint>

#include "base/rounding.h"
#include "kernels/attention_gradient.h"
#include "kernels/cpu/attention_gradient_layout.h"
#include "kernels/cpu/strip_products.h"
#include "kernels/cpu/vector_math.h"

// The gradient of attention in f32 over the 16 lanes of an instruction set, after FlashAttention
// (Dao et al. 2022, arXiv:2205.14135): weights are computed again from the log-sum-exp, block by
// block.
//
//   P = exp(scale * Q K^T - lse)   D = rowsum(dO * O)   dS = P * (dO V^T - D) * scale
//   dQ = dS K   dK = dS^T Q   dV = P^T dO
//
// Blocks of keys ascend, and for each of them blocks of rows: sums over keys and sums over rows are
// chains in ascending order, which go on from what stands in memory.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// A call, and where its scratch lies.
struct GradientPass {
  const AttentionGradientArgs& args;
  GradientScratch at;
  float* memory;
};

/// 64 rows, or those that are left, and a block of keys; in strips of 16.
struct GradientBlock {
  std::int64_t first_row;
  std::int64_t first_key;
  std::int64_t strips;                            // of rows
  KeyRange keys[kGradientRows / kGradientStrip];  // that a strip meets, of the block
};

inline void start_rows(const GradientPass& pass) {
  const AttentionGradientArgs& args = pass.args;
  float* const memory = pass.memory;
  const RowBlock queries{args.queries, 0, args.num_rows, pass.at.rows, args.head_dim};
  copy_rows(queries, memory + pass.at.queries);
  turn_rows(queries, memory + pass.at.queries, memory + pass.at.query_panels);
  const RowBlock gradients{args.result_gradients, 0, args.num_rows, pass.at.rows, args.value_dim};
  copy_rows(gradients, memory + pass.at.gradients);
  turn_rows(gradients, memory + pass.at.gradients, memory + pass.at.gradient_panels);
  clear(memory + pass.at.query_sums, pass.at.rows * pass.at.head_width);
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    Lanes sum = broadcast(0);
    for_each_vector(args.value_dim, [&](std::int64_t d, auto part) {
      sum = fma(load(args.result_gradients.row(row) + d, part),
                load(args.results.row(row) + d, part), sum);
    });
    memory[pass.at.dots + row] = sum_lanes(sum);
  }
}

inline void start_keys(const GradientPass& pass, std::int64_t first_key) {
  const AttentionGradientArgs& args = pass.args;
  float* const memory = pass.memory;
  const std::int64_t left = args.num_rows - first_key;
  const std::int64_t count = left < kKeysPerBlock ? left : kKeysPerBlock;
  const RowBlock keys{args.keys, first_key, count, kKeysPerBlock, args.head_dim};
  copy_rows(keys, memory + pass.at.keys);
  turn_rows(keys, memory + pass.at.keys, memory + pass.at.key_panels);
  const RowBlock values{args.values, first_key, count, kKeysPerBlock, args.value_dim};
  copy_rows(values, memory + pass.at.values);
  turn_rows(values, memory + pass.at.values, memory + pass.at.value_panels);
  clear(memory + pass.at.key_sums, kKeysPerBlock * pass.at.head_width);
  clear(memory + pass.at.value_sums, kKeysPerBlock * pass.at.value_width);
}

/// Scores become weights, 0 where hidden, and gradients of weights become those of scores.
inline void weigh_row(const GradientPass& pass, std::int64_t row, KeyRange keys, KeyRange seen) {
  const AttentionGradientArgs& args = pass.args;
  const bool exists = row < args.num_rows;
  const Lanes scale = broadcast(args.scale);
  const Lanes shift = broadcast(exists ? -*args.log_sum_exps.row(row) : 0);
  const Lanes dot = broadcast(exists ? pass.memory[pass.at.dots + row] : 0);
  const std::int64_t at = row % kGradientRows * kKeysPerBlock;
  float* const weights = pass.memory + pass.at.weights + at;
  float* const gradients = pass.memory + pass.at.score_gradients + at;
  for (std::int64_t key = keys.first; key < keys.end; key += kLanes) {
    const LaneMask mask =
        exists ? lanes_between(seen.first - key, seen.end - key) : lanes_between(0, 0);
    const Lanes weight = exp(fma(load(weights + key), scale, shift));
    const Lanes gradient = (load(gradients + key) - dot) * weight * scale;
    store(weights + key, select(mask, weight, broadcast(0)));
    store(gradients + key, select(mask, gradient, broadcast(0)));
  }
}

/// Scores of a strip of rows and what follows from them, and the strip's share of dQ.
inline void meet_strip(const GradientPass& pass, const GradientBlock& block, std::int64_t strip) {
  const AttentionGradientArgs& args = pass.args;
  const GradientScratch& at = pass.at;
  float* const memory = pass.memory;
  const KeyRange keys = block.keys[strip];
  const std::int64_t first_row = block.first_row + strip * kGradientStrip;
  const std::int64_t in_block = strip * kGradientStrip * kKeysPerBlock;
  for (std::int64_t row = 0; row < kGradientStrip; ++row) {
    clear(memory + at.weights + in_block + row * kKeysPerBlock + keys.first, keys.end - keys.first);
    clear(memory + at.score_gradients + in_block + row * kKeysPerBlock + keys.first,
          keys.end - keys.first);
  }
  const auto dots_of = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth,
                           std::int64_t out) {
    multiply_strip<PanelLayout>({.a = memory + rows + first_row * depth,
                                 .b = memory + columns + keys.first * depth,
                                 .depth_stride = kGradientStrip,
                                 .vector_stride = kGradientStrip * depth,
                                 .depth = depth,
                                 .prefetch_bytes = 0,
                                 .c = memory + out + in_block + keys.first,
                                 .c_stride = kKeysPerBlock},
                                keys.end - keys.first);
  };
  dots_of(at.query_panels, at.key_panels, args.head_dim, at.weights);
  dots_of(at.gradient_panels, at.value_panels, args.value_dim, at.score_gradients);
  for (std::int64_t row = first_row; row < first_row + kGradientStrip; ++row) {
    weigh_row(pass, row, keys, within(seen_keys(row, args.window), block.first_key, kKeysPerBlock));
  }
  multiply_strip<WeightLayout>({.a = memory + at.score_gradients + in_block + keys.first,
                                .b = memory + at.keys + keys.first * at.head_width,
                                .depth_stride = at.head_width,
                                .vector_stride = kLanes,
                                .depth = keys.end - keys.first,
                                .prefetch_bytes = 0,
                                .c = memory + at.query_sums + first_row * at.head_width,
                                .c_stride = at.head_width},
                               at.head_width);
}

/// The shares of dK and dV of a strip of keys.
inline void add_to_keys(const GradientPass& pass, const GradientBlock& block, std::int64_t key) {
  const GradientScratch& at = pass.at;
  float* const memory = pass.memory;
  KeyRange strips{block.strips, 0};  // of rows, that meet these keys
  for (std::int64_t strip = 0; strip < block.strips; ++strip) {
    if (key < block.keys[strip].first || key >= block.keys[strip].end) continue;
    if (strip < strips.first) strips.first = strip;
    strips.end = strip + 1;
  }
  if (strips.empty()) return;
  const std::int64_t row = strips.first * kGradientStrip;
  const auto add = [&](std::int64_t weights, std::int64_t rows, std::int64_t width,
                       std::int64_t sums) {
    multiply_strip<KeyLayout>({.a = memory + weights + row * kKeysPerBlock + key,
                               .b = memory + rows + (block.first_row + row) * width,
                               .depth_stride = width,
                               .vector_stride = kLanes,
                               .depth = (strips.end - strips.first) * kGradientStrip,
                               .prefetch_bytes = 0,
                               .c = memory + sums + key * width,
                               .c_stride = width},
                              width);
  };
  add(at.score_gradients, at.queries, at.head_width, at.key_sums);
  add(at.weights, at.gradients, at.value_width, at.value_sums);
}

inline void meet_block(const GradientPass& pass, std::int64_t first_row, std::int64_t first_key) {
  const AttentionGradientArgs& args = pass.args;
  const std::int64_t left = (pass.at.rows - first_row) / kGradientStrip;
  GradientBlock block{
      .first_row = first_row,
      .first_key = first_key,
      .strips = left < kGradientRows / kGradientStrip ? left : kGradientRows / kGradientStrip,
      .keys = {}};
  for (std::int64_t strip = 0; strip < block.strips; ++strip) {
    const std::int64_t row = first_row + strip * kGradientStrip;
    const KeyRange seen =
        within({seen_keys(row, args.window).first, row + kGradientStrip}, first_key, kKeysPerBlock);
    block.keys[strip] = {seen.first / kGradientStrip * kGradientStrip,
                         round_up(seen.end, kGradientStrip)};
    if (!seen.empty())
      meet_strip(pass, block, strip);
    else
      block.keys[strip] = {};
  }
  for (std::int64_t key = 0; key < kKeysPerBlock; key += kGradientStrip) {
    add_to_keys(pass, block, key);
  }
}

/// Rows [first, first + count) of a result, `dim` elements each.
struct StoredRows {
  std::int64_t first;
  std::int64_t count;
  std::int64_t dim;
};
inline void store_rows(const float* from, const StoredRows& span,
                       AttentionGradientArgs::Rows<float> out) {
  const std::int64_t width = round_up(span.dim, kLanes);
  for (std::int64_t row = 0; row < span.count; ++row) {
    for_each_vector(span.dim, [&](std::int64_t d, auto part) {
      store(out.row(span.first + row) + d, load(from + row * width + d, part), part);
    });
  }
}

inline void finish_keys(const GradientPass& pass, std::int64_t first_key) {
  const AttentionGradientArgs& args = pass.args;
  const std::int64_t left = args.num_rows - first_key;
  const std::int64_t count = left < kKeysPerBlock ? left : kKeysPerBlock;
  store_rows(pass.memory + pass.at.key_sums, {first_key, count, args.head_dim}, args.key_gradients);
  store_rows(pass.memory + pass.at.value_sums, {first_key, count, args.value_dim},
             args.value_gradients);
}

inline void differentiate_f32(const AttentionGradientArgs& args) noexcept {
  const GradientPass pass{args, GradientScratch(args.num_rows, args.head_dim, args.value_dim),
                          reinterpret_cast<float*>(args.scratch)};
  start_rows(pass);
  for (std::int64_t key = 0; key < args.num_rows; key += kKeysPerBlock) {
    start_keys(pass, key);
    const std::int64_t end = end_of_rows(key + kKeysPerBlock - 1, args);
    for (std::int64_t row = key; row < end; row += kGradientRows) meet_block(pass, row, key);
    finish_keys(pass, key);
  }
  store_rows(pass.memory + pass.at.query_sums, {0, args.num_rows, args.head_dim},
             args.query_gradients);
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
