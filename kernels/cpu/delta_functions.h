#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/natural_log.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/delta_kernels.h"

// The kernels of a gated delta net, written once over the 16 lanes of an instruction set.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

inline Lanes silu(Lanes x) {
  return x / (broadcast(1.0F) + exp(broadcast(0) - x));
}

inline void convolve(const DeltaConvolution& by) noexcept {
  const std::int64_t older = by.taps - 1;
  const auto row = [&](std::int64_t t) {  // from -older on
    return t < 0 ? by.before + (older + t) * by.before_stride : by.x + t * by.x_stride;
  };
  for (std::int64_t t = 0; t < by.rows; ++t) {
    for_each_vector(by.channels, [&](std::int64_t c, auto part) {
      Lanes sum = load(by.weights + c, part) * load(row(t - older) + c, part);
      for (std::int64_t j = 1; j < by.taps; ++j) {
        const Lanes weight = load(by.weights + j * by.weights_stride + c, part);
        sum = fma(weight, load(row(t - older + j) + c, part), sum);
      }
      store(by.y + t * by.y_stride + c, silu(sum), part);
    });
  }
  for (std::int64_t i = 0; i < older; ++i) {  // none is overwritten before it has moved
    const float* const from = row(by.rows - older + i);
    for_each_vector(by.channels, [&](std::int64_t c, auto part) {
      store(by.before + i * by.before_stride + c, load(from + c, part), part);
    });
  }
}

inline float scale_to_unit(float scale, float epsilon, std::int64_t n, float* x) noexcept {
  Lanes squares = broadcast(0);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes value = load(x + i, part);
    squares = fma(value, value, squares);
  });
  const float factor = scale * (1.0F / std::sqrt(sum_lanes(squares) + epsilon));
  for_each_vector(n, [&](std::int64_t i, auto part) {
    store(x + i, load(x + i, part) * broadcast(factor), part);
  });
  return factor;
}

/// ln(1 + x) by lanes, of x >= 0.
inline Lanes log_of_one_and(Lanes x) {
  float each[kLanes];
  store(each, x);
  for (float& value : each) value = static_cast<float>(natural_log(1.0 + value));
  return load(each);
}

inline void decays(const float* logs, const float* bias, std::int64_t n, float* x) noexcept {
  const Lanes linear_from = broadcast(20);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes step = load(x + i, part) + load(bias + i, part);
    const Lanes soft = select(less(linear_from, step), step, log_of_one_and(exp(step)));
    store(x + i, exp(broadcast(0) - exp(load(logs + i, part)) * soft), part);
  });
}

/// kBlocks vectors of columns at a time: every broadcast of a key or query serves them all.
template <int kBlocks, typename Part>
inline void delta_blocks(const DeltaRule& by, std::int64_t first_block, Part part) {
  constexpr std::int64_t kChains = 4;
  const std::int64_t block_floats = by.key_dim * kDeltaColumns;
  const std::int64_t column = first_block * kDeltaColumns;
  float* const state = by.state + first_block * block_floats;
  const std::int64_t whole = by.key_dim - by.key_dim % kChains;
  for (std::int64_t t = 0; t < by.rows; ++t) {
    const float* const key = by.keys + t * by.key_dim;
    const float* const query = by.queries + t * by.key_dim;
    const Lanes decay = broadcast(by.decays[t * by.scalar_stride]);
    const Lanes rate = broadcast(by.rates[t * by.scalar_stride]);
    Lanes sums[kBlocks][kChains];
    const auto clear = [&] {
      MOESAIC_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        MOESAIC_UNROLL
        for (int chain = 0; chain < kChains; ++chain) sums[b][chain] = broadcast(0);
      }
    };
    const auto total = [&](int b) { return (sums[b][0] + sums[b][1]) + (sums[b][2] + sums[b][3]); };
    const auto meet_key = [&](std::int64_t i, std::int64_t chain) {
      const Lanes k = broadcast(key[i]);
      MOESAIC_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        const Lanes s = load(state + b * block_floats + i * kDeltaColumns);
        sums[b][chain] = fma(s, k, sums[b][chain]);
      }
    };
    clear();
    for (std::int64_t i = 0; i < whole; i += kChains) {
      MOESAIC_UNROLL
      for (std::int64_t chain = 0; chain < kChains; ++chain) meet_key(i + chain, chain);
    }
    for (std::int64_t i = whole; i < by.key_dim; ++i) meet_key(i, i - whole);
    Lanes errors[kBlocks];
    MOESAIC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const Lanes v = load(by.values + t * by.value_stride + column + b * kDeltaColumns, part);
      errors[b] = rate * (v - decay * total(b));
      if (by.errors == nullptr) continue;
      store(by.errors + t * by.errors_stride + column + b * kDeltaColumns, errors[b], part);
    }
    const auto update = [&](std::int64_t i, std::int64_t chain) {
      const Lanes k = broadcast(key[i]);
      const Lanes q = broadcast(query[i]);
      MOESAIC_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        float* const at = state + b * block_floats + i * kDeltaColumns;
        const Lanes s = fma(k, errors[b], decay * load(at));
        store(at, s);
        sums[b][chain] = fma(s, q, sums[b][chain]);
      }
    };
    clear();
    for (std::int64_t i = 0; i < whole; i += kChains) {
      MOESAIC_UNROLL
      for (std::int64_t chain = 0; chain < kChains; ++chain) update(i + chain, chain);
    }
    for (std::int64_t i = whole; i < by.key_dim; ++i) update(i, i - whole);
    MOESAIC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      store(by.y + t * by.y_stride + column + b * kDeltaColumns, total(b), part);
    }
  }
}

inline void delta_rule(const DeltaRule& by) noexcept {
  static_assert(kLanes == kDeltaColumns);
  const std::int64_t whole = by.columns / kDeltaColumns;
  std::int64_t block = 0;
  if constexpr (kLanesIsa >= Isa::avx512) {  // whose registers hold the sums of two
    for (; block + 2 <= whole; block += 2) delta_blocks<2>(by, block, AllLanes{});
  }
  for (; block < whole; ++block) delta_blocks<1>(by, block, AllLanes{});
  const std::int64_t rest = by.columns % kDeltaColumns;
  if (rest > 0) delta_blocks<1>(by, block, FirstLanes{rest});
}

inline void gated_norm(const float* weight, float epsilon, const float* gate, std::int64_t n,
                       float* y) noexcept {
  Lanes squares = broadcast(0);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes value = load(y + i, part);
    squares = fma(value, value, squares);
  });
  const float mean = sum_lanes(squares) / static_cast<float>(n);
  const Lanes inverse = broadcast(1.0F / std::sqrt(mean + epsilon));
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes normed = load(weight + i, part) * (load(y + i, part) * inverse);
    store(y + i, normed * silu(load(gate + i, part)), part);
  });
}

constexpr DeltaKernels make_delta_kernels() {
  return {.convolve = convolve,
          .scale_to_unit = scale_to_unit,
          .decays = decays,
          .delta_rule = delta_rule,
          .gated_norm = gated_norm};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
