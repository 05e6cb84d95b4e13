#pragma once

#include <cstdint>

namespace moesaic {

/// Columns of a state that lie together: its layout is [blocks][key_dim][kDeltaColumns], a block
/// for so many columns of the value head, the last one filled up with zeros.
inline constexpr std::int64_t kDeltaColumns = 16;

/// A causal convolution over the rows of a sequence, each channel by itself, and silu:
///   y[t][c] = silu(sum_j weights[j][c] * x[t - taps + 1 + j][c]),
/// summed from j = 0 on. Rows before the first are those of `before`, the oldest first, which
/// become the last taps - 1 rows of all that there are.
struct DeltaConvolution {
  const float* x = nullptr;  // [rows, x_stride] of which the first `channels`
  std::int64_t x_stride = 0;
  float* before = nullptr;  // [taps - 1, before_stride], the same
  std::int64_t before_stride = 0;
  const float* weights = nullptr;  // [taps, weights_stride], the same
  std::int64_t weights_stride = 0;
  std::int64_t taps = 0;
  std::int64_t channels = 0;
  std::int64_t rows = 0;
  float* y = nullptr;  // [rows, y_stride], the same
  std::int64_t y_stride = 0;
};

/// Some columns of the state S [key_dim, columns] of a value head, through the rows of a sequence.
/// With a row's key k, query q, value v, decay g and rate b:
///   e = b (v - g (S^T k)),  S = g S + k e^T,  y = S^T q,
/// where S^T k and S^T q are four sums, of the elements i of k with i % 4 = 0, 1, 2, 3, ascending,
/// added as (0 + 1) + (2 + 3).
struct DeltaRule {
  const float* queries = nullptr;  // [rows, key_dim]
  const float* keys = nullptr;     // [rows, key_dim]
  const float* values = nullptr;   // [rows, value_stride] of which the first `columns`
  std::int64_t value_stride = 0;
  const float* decays = nullptr;  // [rows, scalar_stride] of which the first
  const float* rates = nullptr;   // the same
  std::int64_t scalar_stride = 0;
  std::int64_t key_dim = 0;
  std::int64_t columns = 0;
  std::int64_t rows = 0;
  float* state = nullptr;  // of all blocks that have these columns
  float* y = nullptr;      // [rows, y_stride] of which the first `columns`
  std::int64_t y_stride = 0;
  float* errors = nullptr;  // e, the same, errors_stride apart; null: not wanted
  std::int64_t errors_stride = 0;
};

/// What a gated delta net computes besides products with weights, in f32: the same bits with every
/// instruction set. Sums run as in the other vector kernels, unless said otherwise.
struct DeltaKernels {
  void (*convolve)(const DeltaConvolution& convolution) noexcept;
  /// x[i] *= scale / sqrt(sum(x^2) + epsilon). Returns that factor.
  float (*scale_to_unit)(float scale, float epsilon, std::int64_t n, float* x) noexcept;
  /// x[i] = exp(-exp(logs[i]) * softplus(x[i] + bias[i])), in place; softplus(x) is x above 20,
  /// ln(1 + exp(x)) elsewhere.
  void (*decays)(const float* logs, const float* bias, std::int64_t n, float* x) noexcept;
  void (*delta_rule)(const DeltaRule& rule) noexcept;
  /// y[i] = norm(y)[i] * silu(gate[i]), where norm() is rms_norm by `weight`.
  void (*gated_norm)(const float* weight, float epsilon, const float* gate, std::int64_t n,
                     float* y) noexcept;
};

}  // namespace moesaic
