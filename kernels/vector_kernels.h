#pragma once

#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "kernels/cpu_features.h"

namespace moesaic {

/// Keys of one block of the key-value cache: K blocks of this many keys are stored transposed, and
/// the running softmax advances by this many keys, counted from position 0 of the sequence.
inline constexpr std::int64_t kKeysPerPanel = 16;
inline constexpr std::int64_t kKeysPerBlock = 64;
/// Query rows that share one pass over keys and values: calls of fewer rows read them more often.
inline constexpr std::int64_t kAttentionRows = 64;

/// Attention of some query rows over the keys of one KV head.
struct AttentionArgs {
  const float* queries = nullptr;  // [num_rows, head_dim], rows query_stride apart
  std::int64_t query_stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t head_dim = 0;  // any even number
  /// Row i sees keys [first_keys[i], end_keys[i]), at least one; positions from 0.
  const std::int64_t* first_keys = nullptr;
  const std::int64_t* end_keys = nullptr;
  /// [ceil(keys / 16)][head_dim][16]: key p, element d at panel p / 16, (d, p % 16).
  const void* keys = nullptr;
  const void* values = nullptr;  // [keys][head_dim]
  float scale = 1;               // multiplies the scores
  float* scratch = nullptr;      // attention_scratch_floats(head_dim) elements
  float* out = nullptr;          // [num_rows, head_dim], rows out_stride apart
  std::int64_t out_stride = 0;
};

/// How gate and up become an MLP's inner activations, all in f32:
///   g' = min(gate, limit), u' = clamp(up, -limit, limit), g' * sigmoid(alpha * g') * (u' +
///   offset).
/// SwiGLU has no limit, alpha 1 and offset 0; DeepSeek-V4 a limit of 10; gpt-oss a limit of 7,
/// alpha 1.702 and offset 1.
struct Gating {
  float limit = std::numeric_limits<float>::infinity();
  float alpha = 1;
  float offset = 0;
};

/// Vector work besides products, in f32: one constant table an instruction set. Sums run in 16
/// lanes (element i in lane i % 16, ascending, fused multiply-adds) and one fixed tree over the
/// lanes (halves: lane j + lane j + 8, then + 4, + 2, + 1), so that every table gives the same
/// bits.
struct VectorKernels {
  Isa isa;
  const char* name;
  /// y[i] = weight[i] * (x[i] * 1 / sqrt(mean(x^2) + epsilon)). x may be y.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::int64_t n,
                   float* y) noexcept;
  /// Nearest-even; subnormals kept; NaN quiet.
  void (*to_bf16)(const float* x, std::int64_t n, BFloat16* y) noexcept;
  /// gate[i] becomes the gated activation of gate[i] and up[i].
  void (*gate)(const Gating& gating, const float* up, std::int64_t n, float* gate) noexcept;
  /// y[i] += x[i].
  void (*add)(const float* x, std::int64_t n, float* y) noexcept;
  /// y[i] = fma(scale, x[i], y[i]).
  void (*add_scaled)(const float* x, float scale, std::int64_t n, float* y) noexcept;
  /// x[i] = exp(x[i] - max) / sum, in place.
  void (*softmax)(float* x, std::int64_t n) noexcept;
  /// log(sum_i exp(x[i])), for losses.
  float (*log_sum_exp)(const float* x, std::int64_t n) noexcept;
  /// softmax(scale * q k^T) v for each row; a row's bits depend on that row, its range and the
  /// cache.
  void (*attention_bf16)(const AttentionArgs& args) noexcept;  // keys, values: BFloat16
  void (*attention_f32)(const AttentionArgs& args) noexcept;   // keys, values: float
};

/// Elements of AttentionArgs::scratch, 4-byte aligned; its contents mean nothing between calls.
[[nodiscard]] std::int64_t attention_scratch_floats(std::int64_t head_dim) noexcept;

}  // namespace moesaic
