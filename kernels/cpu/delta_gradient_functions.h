#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/delta_chunk_functions.h"
#include "kernels/cpu/delta_functions.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/delta_gradient.h"

// The way back through the kernels of a gated delta net, written once over the 16 lanes of an
// instruction set.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

inline Lanes sigmoid_of(Lanes x) {
  return broadcast(1.0F) / (broadcast(1.0F) + exp(broadcast(0) - x));
}

/// Of x sigmoid(x).
inline Lanes silu_slope(Lanes x) {
  const Lanes sigmoid = sigmoid_of(x);
  return sigmoid * fma(x, broadcast(1.0F) - sigmoid, broadcast(1.0F));
}

inline void convolve_back(const DeltaConvolutionGradient& by) noexcept {
  const std::int64_t older = by.taps - 1;
  for (std::int64_t t = 0; t < by.rows; ++t) {
    for_each_vector(by.channels, [&](std::int64_t c, auto part) {
      Lanes sum = broadcast(0);
      for (std::int64_t j = t < older ? older - t : 0; j < by.taps; ++j) {
        sum = fma(load(by.weights.row(j) + c, part), load(by.x.row(t - older + j) + c, part), sum);
      }
      float* const at = by.gradient.row(t) + c;
      store(at, load(at, part) * silu_slope(sum), part);
    });
  }
  for (std::int64_t t = 0; t < by.rows; ++t) {  // rows from t on are still those of sums
    const std::int64_t later = by.rows - 1 - t < older ? by.rows - 1 - t : older;
    for_each_vector(by.channels, [&](std::int64_t c, auto part) {
      Lanes sum = broadcast(0);
      for (std::int64_t i = 0; i <= later; ++i) {
        const Lanes weight = load(by.weights.row(older - i) + c, part);
        sum = fma(weight, load(by.gradient.row(t + i) + c, part), sum);
      }
      store(by.gradient.row(t) + c, sum, part);
    });
  }
}

inline void unit_back(const UnitRow& row, float* gradient) noexcept {
  const Lanes share = broadcast(-dot(row.unit, gradient, row.n) / (row.scale * row.scale));
  for_each_vector(row.n, [&](std::int64_t i, auto part) {
    const Lanes centred = fma(load(row.unit + i, part), share, load(gradient + i, part));
    store(gradient + i, broadcast(row.factor) * centred, part);
  });
}

inline void decay_slopes(const float* logs, const float* bias, std::int64_t n, float* x) noexcept {
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes sigmoid = sigmoid_of(load(x + i, part) + load(bias + i, part));
    store(x + i, broadcast(0) - exp(load(logs + i, part)) * sigmoid, part);
  });
}

inline void gated_norm_back(const GatedNormRow& row, float* gradient,
                            float* gate_gradient) noexcept {
  const float mean = dot(row.y, row.y, row.n) / static_cast<float>(row.n);
  const Lanes inverse = broadcast(1.0F / std::sqrt(mean + row.epsilon));
  Lanes sums = broadcast(0);
  for_each_vector(row.n, [&](std::int64_t i, auto part) {
    const Lanes d = load(gradient + i, part);
    const Lanes weight = load(row.weight + i, part);
    const Lanes y = load(row.y + i, part);
    const Lanes gate = load(row.gate + i, part);
    store(gate_gradient + i, d * (weight * (y * inverse)) * silu_slope(gate), part);
    const Lanes scaled = d * silu(gate) * weight;
    store(gradient + i, scaled, part);
    sums = fma(scaled, y, sums);
  });
  const Lanes share = inverse * inverse * broadcast(-sum_lanes(sums) / static_cast<float>(row.n));
  for_each_vector(row.n, [&](std::int64_t i, auto part) {
    const Lanes centred = fma(load(row.y + i, part), share, load(gradient + i, part));
    store(gradient + i, centred * inverse, part);
  });
}

/// kBlocks vectors of columns at a time. The last step of a row goes along with the first of the
/// row before it, so that a state is loaded and stored once a row.
template <int kBlocks, typename Part>
inline void delta_blocks_back(const DeltaRuleGradient& by, std::int64_t first_block, Part part) {
  constexpr std::int64_t kChains = 4;
  const std::int64_t block_floats = by.key_dim * kDeltaColumns;
  const std::int64_t column = first_block * kDeltaColumns;
  float* const state = by.state_gradient + first_block * block_floats;
  const std::int64_t whole = by.key_dim - by.key_dim % kChains;
  Lanes decay = broadcast(1.0F);  // of the row after
  Lanes shares[kBlocks];          // -(b g) de of the row after
  const auto at = [&](int b, std::int64_t i) {
    return state + b * block_floats + i * kDeltaColumns;
  };
  MOESAIC_UNROLL
  for (int b = 0; b < kBlocks; ++b) shares[b] = broadcast(0);
  const float* next_key = by.keys;
  for (std::int64_t t = by.rows - 1; t >= 0; --t) {
    const float* const key = by.keys + t * by.key_dim;
    const float* const query = by.queries + t * by.key_dim;
    Lanes given[kBlocks];
    Lanes sums[kBlocks][kChains];
    MOESAIC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      given[b] = load(by.result_gradients.row(t) + column + b * kDeltaColumns, part);
      MOESAIC_UNROLL
      for (int chain = 0; chain < kChains; ++chain) sums[b][chain] = broadcast(0);
    }
    const auto step = [&](std::int64_t i, std::int64_t chain) {
      const Lanes later = broadcast(next_key[i]);
      const Lanes q = broadcast(query[i]);
      const Lanes k = broadcast(key[i]);
      MOESAIC_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        const Lanes before = fma(later, shares[b], decay * load(at(b, i)));
        const Lanes s = fma(q, given[b], before);
        store(at(b, i), s);
        sums[b][chain] = fma(s, k, sums[b][chain]);
      }
    };
    for (std::int64_t i = 0; i < whole; i += kChains) {
      MOESAIC_UNROLL
      for (std::int64_t chain = 0; chain < kChains; ++chain) step(i + chain, chain);
    }
    for (std::int64_t i = whole; i < by.key_dim; ++i) step(i, i - whole);
    decay = broadcast(by.decays[t * by.scalar_stride]);
    const Lanes factor = broadcast(0) - broadcast(by.rates[t * by.scalar_stride]) * decay;
    MOESAIC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const Lanes error = (sums[b][0] + sums[b][1]) + (sums[b][2] + sums[b][3]);
      store(by.error_gradients.row(t) + column + b * kDeltaColumns, error, part);
      shares[b] = factor * error;
    }
    next_key = key;
  }
  for (std::int64_t i = 0; i < by.key_dim; ++i) {
    MOESAIC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const Lanes s = fma(broadcast(next_key[i]), shares[b], decay * load(at(b, i)));
      const Lanes size = max(s, broadcast(0) - s);
      store(at(b, i), select(less(size, broadcast(kLeastDelta)), broadcast(0), s));
    }
  }
}

inline void delta_rule_back(const DeltaRuleGradient& by) noexcept {
  const std::int64_t whole = by.columns / kDeltaColumns;
  std::int64_t block = 0;
  if constexpr (kLanesIsa >= Isa::avx512) {  // whose registers hold the sums of two
    for (; block + 2 <= whole; block += 2) delta_blocks_back<2>(by, block, AllLanes{});
  }
  for (; block < whole; ++block) delta_blocks_back<1>(by, block, AllLanes{});
  const std::int64_t rest = by.columns % kDeltaColumns;
  if (rest > 0) delta_blocks_back<1>(by, block, FirstLanes{rest});
}

constexpr DeltaGradientKernels make_delta_gradient_kernels() {
  return {.convolve = convolve_back,
          .unit = unit_back,
          .decay_slopes = decay_slopes,
          .gated_norm = gated_norm_back,
          .delta_rule = delta_rule_back,
          .chunk = differentiate_chunk};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
