#pragma once

#include <cstdint>

#include "kernels/cpu/strip_products.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/delta_gradient.h"

// What is left of the way back through a gated delta net when the errors and their gradients are
// known: products of matrices, as in Yang et al. 2024 (arXiv:2406.06484).

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

inline float dot(const float* a, const float* b, std::int64_t n) {
  Lanes sum = broadcast(0);
  for_each_vector(
      n, [&](std::int64_t i, auto part) { sum = fma(load(a + i, part), load(b + i, part), sum); });
  return sum_lanes(sum);
}

/// A call, and where its scratch lies. Rows are filled up to whole strips with zeros.
struct ChunkPass {
  const DeltaChunk& by;
  DeltaChunkScratch at;
  std::int64_t rows;  // a multiple of 16

  [[nodiscard]] float* scratch(std::int64_t offset) const { return by.scratch + offset; }
};

inline void start_chunk(const ChunkPass& pass) {
  const DeltaChunk& by = pass.by;
  const auto copy_keys = [&](const float* from, std::int64_t to) {
    copy_rows({{from, by.key_dim}, 0, by.rows, pass.rows, by.key_dim}, pass.scratch(to));
  };
  copy_keys(by.queries, pass.at.queries);
  copy_keys(by.keys, pass.at.keys);
  const auto turn = [&](DeltaRows<const float> from, std::int64_t to) {
    const RowBlock block{from, 0, by.rows, pass.rows, by.value_dim};
    copy_rows(block, pass.scratch(pass.at.value_rows));
    turn_rows(block, pass.scratch(pass.at.value_rows), pass.scratch(to));
  };
  turn(by.result_gradients, pass.at.result_panels);
  turn({by.errors, by.value_dim}, pass.at.error_panels);
  turn({by.value_gradients.data, by.value_gradients.stride}, pass.at.value_panels);
}

/// dv, and the gradients of a row's two scalars.
inline void differentiate_scalars(const DeltaChunk& by) {
  const std::int64_t state = round_up(by.value_dim, kDeltaColumns) * by.key_dim;
  float along = by.end_gradient != nullptr ? dot(by.end, by.end_gradient, state) : 0.0F;
  for (std::int64_t t = by.rows - 1; t >= 0; --t) {
    const float rate = by.rates[t * by.scalar_stride];
    const float* const errors = by.error_gradients + t * by.value_dim;
    float* const values = by.value_gradients.row(t);
    for_each_vector(by.value_dim, [&](std::int64_t c, auto part) {
      store(values + c, broadcast(rate) * load(errors + c, part), part);
    });
    by.rate_gradients[t * by.scalar_stride] =
        dot(errors, by.errors + t * by.value_dim, by.value_dim) * (1.0F - rate);
    along += dot(by.results.row(t), by.result_gradients.row(t), by.value_dim) -
             dot(by.values.row(t), values, by.value_dim);
    by.decay_gradients[t * by.scalar_stride] = along;
  }
}

/// d(t, s), zeros where s > t.
inline void multiply_decays(const ChunkPass& pass) {
  const Lanes least = broadcast(kLeastDelta);
  float* const all = pass.scratch(pass.at.decays);
  clear(all, pass.rows * kDeltaChunk);
  for (std::int64_t t = 0; t < pass.by.rows; ++t) {
    float* const row = all + t * kDeltaChunk;
    const Lanes decay = broadcast(pass.by.decays[t * pass.by.scalar_stride]);
    for (std::int64_t s = 0; s < t; s += kLanes) {
      const Lanes product = decay * load(row - kDeltaChunk + s);
      store(row + s, select(less(product, least), broadcast(0), product));
    }
    row[t] = 1;
  }
}

/// [row t][s] of products of rows with errors, times d(t, s), or minus that where s = t is left
/// out.
inline void meet_errors(const ChunkPass& pass, std::int64_t panels, bool is_value,
                        std::int64_t to) {
  const std::int64_t depth = pass.by.value_dim;
  for (std::int64_t first = 0; first < pass.rows; first += kGradientStrip) {
    float* const out = pass.scratch(to) + first * kDeltaChunk;
    const std::int64_t columns = first + kGradientStrip;
    for (std::int64_t row = 0; row < kGradientStrip; ++row) clear(out + row * kDeltaChunk, columns);
    multiply_strip<PanelLayout>({.a = pass.scratch(panels) + first * depth,
                                 .b = pass.scratch(pass.at.error_panels),
                                 .depth_stride = kGradientStrip,
                                 .vector_stride = kGradientStrip * depth,
                                 .depth = depth,
                                 .prefetch_bytes = 0,
                                 .c = out,
                                 .c_stride = kDeltaChunk},
                                columns);
    const float* const decays = pass.scratch(pass.at.decays) + first * kDeltaChunk;
    const Lanes sign = broadcast(is_value ? -1.0F : 1.0F);
    for (std::int64_t row = 0; row < kGradientStrip; ++row) {
      for (std::int64_t s = 0; s < columns; s += kLanes) {
        const std::int64_t at = row * kDeltaChunk + s;
        store(out + at, sign * load(decays + at) * load(out + at));
      }
      if (is_value) out[row * kDeltaChunk + first + row] = 0;
    }
  }
}

/// A state [blocks of columns][key_dim][16] as [blocks of keys][value_width][16].
inline void turn_state(const ChunkPass& pass, const float* state) {
  const std::int64_t key_dim = pass.by.key_dim;
  const TransposeLoops& loops = find_transpose_loops(kLanesIsa);
  alignas(64) float lines[kGradientStrip * kLanes];
  for (std::int64_t column = 0; column < pass.at.value_width; column += kLanes) {
    for (std::int64_t key = 0; key < key_dim; key += kGradientStrip) {
      for (std::int64_t i = 0; i < kGradientStrip; ++i) {
        const float* const from = state + column * key_dim + (key + i) * kLanes;
        store(lines + i * kLanes, key + i < key_dim ? load(from) : broadcast(0));
      }
      float* const to =
          pass.scratch(pass.at.state_panels) + key * pass.at.value_width + column * kLanes;
      loops.f32_lines(reinterpret_cast<const std::byte*>(lines), reinterpret_cast<std::byte*>(to),
                      64);
    }
  }
}

/// sums [rows, key_width] = what a state that was turned makes of rows.
inline void meet_state(const ChunkPass& pass, std::int64_t panels, std::int64_t to) {
  const std::int64_t depth = pass.by.value_dim;
  float* const sums = pass.scratch(to);
  clear(sums, pass.rows * pass.at.key_width);
  for (std::int64_t first = 0; first < pass.rows; first += kGradientStrip) {
    multiply_strip<PanelLayout>({.a = pass.scratch(panels) + first * depth,
                                 .b = pass.scratch(pass.at.state_panels),
                                 .depth_stride = kGradientStrip,
                                 .vector_stride = kGradientStrip * pass.at.value_width,
                                 .depth = depth,
                                 .prefetch_bytes = 0,
                                 .c = sums + first * pass.at.key_width,
                                 .c_stride = pass.at.key_width},
                                pass.at.key_width);
  }
}

/// What the states before and after the chunk give queries and keys.
inline void meet_states(const ChunkPass& pass) {
  const DeltaChunk& by = pass.by;
  const std::int64_t width = pass.at.key_width;
  const float* const decays = pass.scratch(pass.at.decays);
  float* const queries = pass.scratch(pass.at.query_sums);
  float* const keys = pass.scratch(pass.at.key_sums);
  if (by.end_gradient != nullptr) {
    turn_state(pass, by.end_gradient);
    meet_state(pass, pass.at.error_panels, pass.at.key_sums);
    for (std::int64_t t = 0; t < by.rows; ++t) {
      const Lanes decay = broadcast(decays[(by.rows - 1) * kDeltaChunk + t]);
      for (std::int64_t i = t * width; i < (t + 1) * width; i += kLanes) {
        store(keys + i, decay * load(keys + i));
      }
    }
  } else {
    clear(keys, pass.rows * width);
  }
  if (by.start == nullptr) return clear(queries, pass.rows * width);
  turn_state(pass, by.start);
  meet_state(pass, pass.at.result_panels, pass.at.query_sums);
  meet_state(pass, pass.at.value_panels, pass.at.start_sums);
  const float* const from_start = pass.scratch(pass.at.start_sums);
  for (std::int64_t t = 0; t < by.rows; ++t) {
    const float from_first = decays[t * kDeltaChunk] * by.decays[0];
    const Lanes decay = broadcast(from_first < kLeastDelta ? 0 : from_first);
    for (std::int64_t i = t * width; i < (t + 1) * width; i += kLanes) {
      store(queries + i, decay * load(queries + i));
      store(keys + i, fma(broadcast(0) - decay, load(from_start + i), load(keys + i)));
    }
  }
}

/// Adds products of rows by rows [t][s] with rows s, s <= t, to the sums of rows t.
inline void add_earlier(const ChunkPass& pass, std::int64_t products, std::int64_t rows,
                        std::int64_t sums) {
  const std::int64_t width = pass.at.key_width;
  for (std::int64_t first = 0; first < pass.rows; first += kGradientStrip) {
    multiply_strip<WeightLayout>({.a = pass.scratch(products) + first * kDeltaChunk,
                                  .b = pass.scratch(rows),
                                  .depth_stride = width,
                                  .vector_stride = kLanes,
                                  .depth = first + kGradientStrip,
                                  .prefetch_bytes = 0,
                                  .c = pass.scratch(sums) + first * width,
                                  .c_stride = width},
                                 width);
  }
}

/// Adds products of rows by rows [t][s] with rows t, t >= s, to the sums of rows s.
inline void add_later(const ChunkPass& pass, std::int64_t products, std::int64_t rows,
                      std::int64_t sums) {
  const std::int64_t width = pass.at.key_width;
  for (std::int64_t first = 0; first < pass.rows; first += kGradientStrip) {
    multiply_strip<KeyLayout>({.a = pass.scratch(products) + first * kDeltaChunk + first,
                               .b = pass.scratch(rows) + first * width,
                               .depth_stride = width,
                               .vector_stride = kLanes,
                               .depth = pass.rows - first,
                               .prefetch_bytes = 0,
                               .c = pass.scratch(sums) + first * width,
                               .c_stride = width},
                              width);
  }
}

inline void add_sums(const ChunkPass& pass, std::int64_t sums, DeltaRows<float> out) {
  for (std::int64_t t = 0; t < pass.by.rows; ++t) {
    const float* const row = pass.scratch(sums) + t * pass.at.key_width;
    for_each_vector(pass.by.key_dim, [&](std::int64_t i, auto part) {
      store(out.row(t) + i, load(out.row(t) + i, part) + load(row + i, part), part);
    });
  }
}

inline void differentiate_chunk(const DeltaChunk& by) noexcept {
  static_assert(kDeltaChunk == kKeysPerBlock);  // as layouts have it
  const ChunkPass pass{by, DeltaChunkScratch(by.key_dim, by.value_dim),
                       round_up(by.rows, kGradientStrip)};
  differentiate_scalars(by);
  start_chunk(pass);
  multiply_decays(pass);
  meet_errors(pass, pass.at.result_panels, false, pass.at.result_products);
  meet_errors(pass, pass.at.value_panels, true, pass.at.value_products);
  meet_states(pass);
  add_earlier(pass, pass.at.result_products, pass.at.keys, pass.at.query_sums);
  add_later(pass, pass.at.result_products, pass.at.queries, pass.at.key_sums);
  add_later(pass, pass.at.value_products, pass.at.keys, pass.at.key_sums);
  add_earlier(pass, pass.at.value_products, pass.at.keys, pass.at.key_sums);
  add_sums(pass, pass.at.query_sums, by.query_gradients);
  add_sums(pass, pass.at.key_sums, by.key_gradients);
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
