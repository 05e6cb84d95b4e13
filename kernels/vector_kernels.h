#pragma once

#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "kernels/cpu_features.h"
#include "kernels/delta_gradient.h"
#include "kernels/delta_kernels.h"
#include "kernels/gradient_kernels.h"

namespace moesaic {

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

/// The norm of one row, y[i] = weight[i] * (x[i] * 1 / sqrt(mean(x^2) + epsilon)).
struct RmsNorm {
  const float* x = nullptr;       // [n]
  const float* weight = nullptr;  // [n]
  float epsilon = 0;
  std::int64_t n = 0;
};

/// Which elements of the rotated part of a head are pair i.
enum class RotaryForm {
  halves,  ///< i and i + half
  pairs    ///< 2 i and 2 i + 1
};

/// Cosines and sines [half] of a token's rotary embedding.
struct RotaryAngles {
  const float* cosines = nullptr;
  const float* sines = nullptr;
  std::int64_t half = 0;
  RotaryForm form = RotaryForm::halves;
};

/// A row of an MLP in a backward pass; what comes in, and what it becomes.
struct GatedRow {
  float* gate;   // gate: the loss's gradient by it
  float* up;     // up: the same
  float* inner;  // the gradient by the gated activations: these
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
  /// The gradient of a norm's x, of that of its y: with r = 1 / sqrt(mean(x^2) + epsilon) as the
  /// norm has it and s the sum of dy[i] weight[i] times x[i],
  ///   dx[i] = fma(x[i], -(r r s / n), dy[i] weight[i]) * r.
  /// dx may be dy.
  void (*rms_norm_gradient)(const RmsNorm& norm, const float* dy, float* dx) noexcept;
  /// Nearest-even; subnormals kept; NaN quiet.
  void (*to_bf16)(const float* x, std::int64_t n, BFloat16* y) noexcept;
  /// gate[i] becomes the gated activation of gate[i] and up[i].
  void (*gate)(const Gating& gating, const float* up, std::int64_t n, float* gate) noexcept;
  /// Goes back through gate(). Returns the sum of gradients times gated activations.
  float (*gate_gradient)(const Gating& gating, const GatedRow& row, std::int64_t n) noexcept;
  /// The same, but what the row becomes is rounded as to_bf16() does: bf16 from where the floats
  /// begin.
  float (*gate_gradient_bf16)(const Gating& gating, const GatedRow& row, std::int64_t n) noexcept;
  /// y[i] += x[i].
  void (*add)(const float* x, std::int64_t n, float* y) noexcept;
  /// y[i] = fma(scale, x[i], y[i]).
  void (*add_scaled)(const float* x, float scale, std::int64_t n, float* y) noexcept;
  /// A pair (a, b) of the first 2 half elements of a head becomes (a cos - b sin, b cos + a sin).
  void (*rotate)(const RotaryAngles& angles, float* head) noexcept;
  /// The other way round: the gradient by what rotate() got, of that by what it made.
  void (*rotate_back)(const RotaryAngles& angles, float* head) noexcept;
  /// Whether no x[i] is infinite or NaN.
  bool (*all_finite)(const float* x, std::int64_t n) noexcept;
  /// x[i] = 1 / (1 + exp(-x[i])), in place.
  void (*sigmoid)(float* x, std::int64_t n) noexcept;
  /// x[i] = exp(x[i] - max) / sum, in place.
  void (*softmax)(float* x, std::int64_t n) noexcept;
  /// log(sum_i exp(x[i])), for losses.
  float (*log_sum_exp)(const float* x, std::int64_t n) noexcept;
  GradientKernels gradients;
  DeltaKernels delta;
  DeltaGradientKernels delta_gradient;
};

}  // namespace moesaic
