#pragma once

#include <cstdint>

#include "kernels/cpu/attention_gradient_panels.h"
#include "kernels/cpu/attention_states.h"
#include "kernels/cpu/tile_environment.h"

// The gradient of attention over a bf16 cache: the products of kernels/cpu/attention_gradient.h
// with all inputs rounded to bf16, in the order of the instruction set's bf16 products. dK and dV
// are computed transposed, so that weights never are:
//
//   S = Q K^T   dP = dO V^T   dQ = dS K   dK^T = Q^T dS   dV^T = dO^T P
//
// `Products` says how an instruction set packs rows (attention_gradient_panels.h) and multiplies
// them by panels:
//
//   multiply_rows(GradientProduct)
//   begin_gradient(), end_gradient()   around all products of a call

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Some packed rows times some panels, over some steps of both.
struct GradientProduct {
  const std::byte* rows;    // of the whole matrix
  std::int64_t row_steps;   // of its rows
  std::int64_t first_row;   // a multiple of 16
  std::int64_t num_rows;    // the same
  std::int64_t first_step;  // of the rows
  const std::byte* panels;  // at the first step
  std::size_t panel_stride;
  std::int64_t num_panels;
  std::int64_t steps;
  bool resume;  // sums go on from what is in `out`; else from zero
  float* out;
  std::int64_t out_stride;
};

template <typename Products>
inline void start_rows(const Bf16Gradient& pass) {
  const AttentionGradientArgs& args = pass.args;
  const Bf16GradientScratch& at = pass.at;
  for (std::int64_t first = 0; first < at.rows; first += kStepDepth) {
    const std::int64_t step = first / kStepDepth;
    const RowChunk queries = load_chunk(pass, args.queries, first, args.head_dim);
    put_rows<Products>(queries, first, pass.bytes(at.queries));
    put_columns<Products>(pass, queries, step, at.steps, pass.bytes(at.query_columns));
    const RowChunk gradients = load_chunk(pass, args.result_gradients, first, args.value_dim);
    put_rows<Products>(gradients, first, pass.bytes(at.gradients));
    put_columns<Products>(pass, gradients, step, at.steps, pass.bytes(at.gradient_columns));
    ask_for_rows(pass, args.results, first + kStepDepth, args.value_dim);
    for (std::int64_t row = first; row < first + kStepDepth; ++row) {
      Lanes sum = broadcast(0);
      const float* const gradient = gradients.values + (row - first) * gradients.width;
      if (row < args.num_rows) {
        for_each_vector(args.value_dim, [&](std::int64_t d, auto part) {
          sum = fma(load(gradient + d, part), load(args.results.row(row) + d, part), sum);
        });
      }
      pass.floats(at.dots)[row] = sum_lanes(sum);
    }
  }
  float* const sums = pass.floats(at.query_sums);
  for (std::int64_t i = 0; i < at.rows * at.head_width; i += kLanes) store(sums + i, broadcast(0));
}

inline void start_keys(const Bf16Gradient& pass, std::int64_t first_key) {
  const AttentionGradientArgs& args = pass.args;
  const Bf16GradientScratch& at = pass.at;
  for (std::int64_t step = 0; step < kGradientDepthSteps; ++step) {
    const std::int64_t key = first_key + step * kStepDepth;
    const RowChunk keys = load_chunk(pass, args.keys, key, args.head_dim);
    put_panels(pass, keys, pass.bytes(at.key_panels) + step * kStepDepth * keys.width * 2);
    put_depth(keys, step, pass.bytes(at.keys));
    const RowChunk values = load_chunk(pass, args.values, key, args.value_dim);
    put_panels(pass, values, pass.bytes(at.value_panels) + step * kStepDepth * values.width * 2);
  }
  for (std::int64_t i = 0; i < kKeysPerBlock * at.head_width; i += kLanes) {
    store(pass.floats(at.key_sums) + i, broadcast(0));
  }
  for (std::int64_t i = 0; i < kKeysPerBlock * at.value_width; i += kLanes) {
    store(pass.floats(at.value_sums) + i, broadcast(0));
  }
}

/// 64 rows, or those that are left, and a block of keys; in strips of 32.
struct Bf16Block {
  std::int64_t first_row;
  std::int64_t first_key;
  std::int64_t strips;                 // of rows
  KeyRange keys[kGradientDepthSteps];  // that a strip meets, of the block
};

/// Weights and gradients of scores of 32 keys, of one row.
struct WeighedKeys {
  Lanes weights[2];
  Lanes gradients[2];
};

/// What one row's scores are weighed by.
class RowScores {
 public:
  RowScores(const Bf16Gradient& pass, const Bf16Block& block, std::int64_t row)
      : scores_(pass.floats(pass.at.scores) + row * kKeysPerBlock),
        products_(pass.floats(pass.at.products) + row * kKeysPerBlock),
        factor_(broadcast(BinaryScores::factor(pass.args.scale))),
        scale_(broadcast(pass.args.scale)) {
    const std::int64_t index = block.first_row + row;
    const bool exists = index < pass.args.num_rows;
    if (!exists) return;
    seen_ = within(seen_keys(index, pass.args.window), block.first_key, kKeysPerBlock);
    shift_ = broadcast(-BinaryScores::factor(*pass.args.log_sum_exps.row(index)));
    dot_ = broadcast(pass.floats(pass.at.dots)[index]);
  }

  [[nodiscard]] WeighedKeys at(std::int64_t key) const {
    WeighedKeys out;
    const bool whole = seen_.first <= key && key + kStepDepth <= seen_.end;
    for (std::int64_t i = 0; i < 2; ++i) {
      const std::int64_t first = key + i * kLanes;
      const Lanes weight = BinaryScores::weight(fma(load(scores_ + first), factor_, shift_));
      const Lanes gradient = (load(products_ + first) - dot_) * weight * scale_;
      const LaneMask seen = lanes_between(seen_.first - first, seen_.end - first);
      out.weights[i] = whole ? weight : select(seen, weight, broadcast(0));
      out.gradients[i] = whole ? gradient : select(seen, gradient, broadcast(0));
    }
    return out;
  }

 private:
  const float* scores_;
  const float* products_;
  Lanes factor_;
  Lanes scale_;
  KeyRange seen_{};  // of the block
  Lanes shift_ = broadcast(0);
  Lanes dot_ = broadcast(0);
};

/// From scores of a strip to weights and gradients of scores, in the forms that products take.
template <typename Products>
inline void weigh_strip(const Bf16Gradient& pass, const Bf16Block& block, std::int64_t strip) {
  const KeyRange keys = block.keys[strip];
  for (std::int64_t i = 0; i < kStepDepth; i += 2) {
    const std::int64_t row = strip * kStepDepth + i;
    const RowScores even(pass, block, row);
    const RowScores odd(pass, block, row + 1);
    std::byte* const rows = pass.bytes(pass.at.score_gradients);
    const auto even_writer = Products::row_writer(rows, kGradientDepthSteps, row);
    const auto odd_writer = Products::row_writer(rows, kGradientDepthSteps, row + 1);
    const auto line = [&](std::int64_t panels, std::int64_t key) {
      return reinterpret_cast<BFloat16*>(deep_panel(pass.bytes(panels), key / kPanelColumns) +
                                         strip * kTileBytes + i / 2 * 64);
    };
    for (std::int64_t key = keys.first; key < keys.end; key += kStepDepth) {
      const WeighedKeys a = even.at(key);
      const WeighedKeys b = odd.at(key);
      even_writer.put(key, a.gradients[0], a.gradients[1]);
      odd_writer.put(key, b.gradients[0], b.gradients[1]);
      for (std::int64_t half = 0; half < 2; ++half) {
        const std::int64_t first = key + half * kLanes;
        store_pairs(line(pass.at.weight_panels, first), a.weights[half], b.weights[half]);
        store_pairs(line(pass.at.gradient_panels, first), a.gradients[half], b.gradients[half]);
      }
    }
  }
}

template <typename Products>
inline void meet_strip(const Bf16Gradient& pass, const Bf16Block& block, std::int64_t strip) {
  const Bf16GradientScratch& at = pass.at;
  const KeyRange keys = block.keys[strip];
  const std::int64_t first_row = block.first_row + strip * kStepDepth;
  const auto score = [&](std::int64_t rows, std::int64_t panels, std::int64_t width,
                         std::int64_t out) {
    const std::int64_t steps = width / kStepDepth;
    Products::multiply_rows(
        {.rows = pass.bytes(rows),
         .row_steps = steps,
         .first_row = first_row,
         .num_rows = kStepDepth,
         .first_step = 0,
         .panels = pass.bytes(panels) + keys.first * width * 2,
         .panel_stride = static_cast<std::size_t>(steps) * kTileBytes,
         .num_panels = (keys.end - keys.first) / kPanelColumns,
         .steps = steps,
         .resume = false,
         .out = pass.floats(out) + strip * kStepDepth * kKeysPerBlock + keys.first,
         .out_stride = kKeysPerBlock});
  };
  score(at.queries, at.key_panels, at.head_width, at.scores);
  score(at.gradients, at.value_panels, at.value_width, at.products);
  weigh_strip<Products>(pass, block, strip);
  Products::multiply_rows({.rows = pass.bytes(at.score_gradients),
                           .row_steps = kGradientDepthSteps,
                           .first_row = strip * kStepDepth,
                           .num_rows = kStepDepth,
                           .first_step = keys.first / kStepDepth,
                           .panels = pass.bytes(at.keys) + keys.first / kStepDepth * kTileBytes,
                           .panel_stride = kGradientDepthSteps * kTileBytes,
                           .num_panels = at.head_width / kPanelColumns,
                           .steps = (keys.end - keys.first) / kStepDepth,
                           .resume = true,
                           .out = pass.floats(at.query_sums) + first_row * at.head_width,
                           .out_stride = at.head_width});
}

/// The shares of dK^T and dV^T of keys [keys.first, keys.end), which the strips of rows
/// [strips.first, strips.end) meet.
template <typename Products>
inline void add_to_keys(const Bf16Gradient& pass, std::int64_t first_row, KeyRange strips,
                        KeyRange keys) {
  const Bf16GradientScratch& at = pass.at;
  const auto add = [&](std::int64_t rows, std::int64_t panels, std::int64_t width,
                       std::int64_t out) {
    Products::multiply_rows({.rows = pass.bytes(rows),
                             .row_steps = at.steps,
                             .first_row = 0,
                             .num_rows = width,
                             .first_step = first_row / kStepDepth + strips.first,
                             .panels = deep_panel(pass.bytes(panels), keys.first / kPanelColumns) +
                                       strips.first * kTileBytes,
                             .panel_stride = kGradientDepthSteps * kTileBytes,
                             .num_panels = (keys.end - keys.first) / kPanelColumns,
                             .steps = strips.end - strips.first,
                             .resume = true,
                             .out = pass.floats(out) + keys.first,
                             .out_stride = kKeysPerBlock});
  };
  add(at.query_columns, at.gradient_panels, at.head_width, at.key_sums);
  add(at.gradient_columns, at.weight_panels, at.value_width, at.value_sums);
}

/// The strips of rows that meet the keys from `key` on.
inline KeyRange meeting_strips(const Bf16Block& block, std::int64_t key) {
  KeyRange strips{block.strips, 0};
  for (std::int64_t strip = 0; strip < block.strips; ++strip) {
    if (key < block.keys[strip].first || key >= block.keys[strip].end) continue;
    if (strip < strips.first) strips.first = strip;
    strips.end = strip + 1;
  }
  return strips;
}

template <typename Products>
inline void meet_block(const Bf16Gradient& pass, std::int64_t first_row, std::int64_t first_key) {
  const std::int64_t left = (pass.at.rows - first_row) / kStepDepth;
  Bf16Block block{.first_row = first_row,
                  .first_key = first_key,
                  .strips = left < kGradientDepthSteps ? left : kGradientDepthSteps,
                  .keys = {}};
  for (std::int64_t strip = 0; strip < block.strips; ++strip) {
    const std::int64_t row = first_row + strip * kStepDepth;
    const KeyRange seen = within({seen_keys(row, pass.args.window).first, row + kStepDepth},
                                 first_key, kKeysPerBlock);
    if (seen.empty()) continue;
    block.keys[strip] = {seen.first / kStepDepth * kStepDepth, round_up(seen.end, kStepDepth)};
    meet_strip<Products>(pass, block, strip);
  }
  const KeyRange first = meeting_strips(block, 0);
  const KeyRange second = meeting_strips(block, kStepDepth);
  if (first.first == second.first && first.end == second.end) {
    if (!first.empty()) add_to_keys<Products>(pass, first_row, first, {0, kKeysPerBlock});
    return;
  }
  if (!first.empty()) add_to_keys<Products>(pass, first_row, first, {0, kStepDepth});
  if (!second.empty()) {
    add_to_keys<Products>(pass, first_row, second, {kStepDepth, kKeysPerBlock});
  }
}

/// Sums [width, 64 keys] of the block to rows of `out`.
inline void store_keys(const Bf16Gradient& pass, const float* sums, std::int64_t first_key,
                       std::int64_t dim, AttentionGradientArgs::Rows<float> out) {
  alignas(64) float turned[16 * kLanes];
  const RowChunk rows{const_cast<float*>(sums), kKeysPerBlock};
  for (std::int64_t d = 0; d < dim; d += kLanes) {
    for (std::int64_t key = 0; key < kKeysPerBlock; key += 16) {
      turn_block(pass, rows, d, key, turned);
      const std::int64_t left = pass.args.num_rows - first_key - key;
      for (std::int64_t i = 0; i < (left < 16 ? left : 16); ++i) {
        float* const to = out.row(first_key + key + i) + d;
        for_each_vector(dim - d < kLanes ? dim - d : kLanes, [&](std::int64_t, auto part) {
          store(to, load(turned + i * kLanes, part), part);
        });
      }
    }
  }
}

template <typename Products>
inline void run_gradient(const Bf16Gradient& pass) {
  const AttentionGradientArgs& args = pass.args;
  start_rows<Products>(pass);
  for (std::int64_t key = 0; key < args.num_rows; key += kKeysPerBlock) {
    start_keys(pass, key);
    const std::int64_t end = end_of_rows(key + kKeysPerBlock - 1, args);
    for (std::int64_t row = key; row < end; row += kGradientRows) {
      meet_block<Products>(pass, row, key);
    }
    store_keys(pass, pass.floats(pass.at.key_sums), key, args.head_dim, args.key_gradients);
    store_keys(pass, pass.floats(pass.at.value_sums), key, args.value_dim, args.value_gradients);
  }
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    const float* const sums = pass.floats(pass.at.query_sums) + row * pass.at.head_width;
    for_each_vector(args.head_dim, [&](std::int64_t d, auto part) {
      store(args.query_gradients.row(row) + d, load(sums + d, part), part);
    });
  }
}

// A call that is not inlined, so that no arithmetic moves across the change of MXCSR.
template <typename Products>
[[gnu::noinline]] void run_gradients(const AttentionGradientArgs& args) {
  Products::begin_gradient();
  run_gradient<Products>(Bf16Gradient(args));
  Products::end();
}
template <typename Products>
void differentiate_bf16(const AttentionGradientArgs& args) noexcept {
  const TileEnvironment environment;
  run_gradients<Products>(args);
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
