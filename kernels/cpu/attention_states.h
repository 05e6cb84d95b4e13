#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/natural_log.h"
#include "kernels/cpu/vector_math.h"

// What becomes of a row's segments: merged in ascending order, joined by the sink, divided.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

/// Scores as f32 attention has them: weights are exp(score - max).
struct NaturalScores {
  static constexpr float factor(float scale) { return scale; }
  static Lanes weight(Lanes difference) { return exp(difference); }
  static double to_natural(float score) { return score; }
  static Lanes tidy(Lanes result) { return result; }
};

/// Scores in units of ln 2, as bf16 attention has them: weights are 2^(score - max).
struct BinaryScores {
  static constexpr float factor(float scale) { return scale * std::numbers::log2e_v<float>; }
  static Lanes weight(Lanes difference) { return power_of_two(difference); }
  static double to_natural(float score) { return score * std::numbers::ln2; }
  /// -0 becomes 0: which zero a sum of nothing but zeros is hangs on keys that are not seen.
  static Lanes tidy(Lanes result) { return result + broadcast(0); }
};

inline float& max_of(float* state, std::int64_t padded_dim) {
  return state[padded_dim];
}
inline float& total_of(float* state, std::int64_t padded_dim) {
  return state[padded_dim + 1];
}

/// What two parts of a softmax are multiplied by to have one greatest score.
struct Shares {
  float max;
  float first;
  float second;
};
template <typename Scores>
inline Shares join(float first_max, float second_max) {
  const float max = first_max > second_max ? first_max : second_max;
  float maxima[kLanes] = {first_max, second_max};
  store(maxima, Scores::weight(load(maxima) - broadcast(max)));
  return {max, maxima[0], maxima[1]};
}

/// Adds the next segment to those before.
template <typename Scores>
inline void merge_state(float* segment, float* state, std::int64_t padded_dim) {
  if (total_of(segment, padded_dim) == 0) return;
  if (total_of(state, padded_dim) == 0) {
    for (std::int64_t d = 0; d < padded_dim + kLanes; d += kLanes) {
      store(state + d, load(segment + d));
    }
    return;
  }
  const Shares shares = join<Scores>(max_of(state, padded_dim), max_of(segment, padded_dim));
  max_of(state, padded_dim) = shares.max;
  total_of(state, padded_dim) = std::fma(total_of(state, padded_dim), shares.first,
                                         total_of(segment, padded_dim) * shares.second);
  for (std::int64_t d = 0; d < padded_dim; d += kLanes) {
    store(state + d, fma(load(state + d), broadcast(shares.first),
                         load(segment + d) * broadcast(shares.second)));
  }
}

/// Where the results of some rows go; as in AttentionArgs.
struct AttentionOutput {
  std::int64_t value_dim;
  const float* sinks;
  float* out;
  std::int64_t out_stride;
  float* log_sum_exps;
};

/// The sink takes its share: a segment of one key without a value.
template <typename Scores>
inline void finish_row(const AttentionOutput& to, std::int64_t row, float* state) {
  const std::int64_t padded_dim = padded_value_dim(to.value_dim);
  Shares shares = {max_of(state, padded_dim), 1, 0};
  if (to.sinks != nullptr) {
    shares = join<Scores>(shares.max, Scores::factor(1) * to.sinks[row]);
  }
  const float total = std::fma(total_of(state, padded_dim), shares.first, shares.second);
  float* out = to.out + row * to.out_stride;
  for_each_vector(to.value_dim, [&](std::int64_t d, auto part) {
    const Lanes sum = load(state + d) * broadcast(shares.first);
    store(out + d, Scores::tidy(sum / broadcast(total)), part);
  });
  if (to.log_sum_exps == nullptr) return;
  to.log_sum_exps[row] = static_cast<float>(Scores::to_natural(shares.max) + natural_log(total));
}

template <typename Scores>
inline void merge_rows(const AttentionMerge& merge) {
  const std::int64_t padded_dim = padded_value_dim(merge.value_dim);
  const AttentionOutput output{merge.value_dim, merge.sinks, merge.out, merge.out_stride,
                               merge.log_sum_exps};
  for (std::int64_t row = 0; row < merge.num_rows; ++row) {
    float* const state = merge.states + row * state_floats(merge.value_dim);
    for (std::int64_t segment = 1; segment < merge.num_segments; ++segment) {
      merge_state<Scores>(state + segment * merge.segment_stride, state, padded_dim);
    }
    finish_row<Scores>(output, row, state);
  }
}

inline AttentionOutput output_of(const AttentionArgs& args) {
  return {args.value_dim, args.sinks, args.out, args.out_stride, args.log_sum_exps};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
