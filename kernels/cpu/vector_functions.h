#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/delta_functions.h"
#include "kernels/cpu/delta_gradient_functions.h"
#include "kernels/cpu/gradient_functions.h"
#include "kernels/cpu/natural_log.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/vector_kernels.h"

// The vector kernels, written once over the 16 lanes of an instruction set.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

inline float max_of(const float* x, std::int64_t n) {
  const Lanes lowest = broadcast(-HUGE_VALF);
  Lanes result = lowest;
  for_each_vector(n, [&](std::int64_t i, auto part) {
    result = max(select(part, load(x + i, part), lowest), result);
  });
  return max_lanes(result);
}

/// 1 / sqrt(mean(x^2) + epsilon)
inline float inverse_root(const float* x, std::int64_t n, float epsilon) {
  Lanes squares = broadcast(0);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes value = load(x + i, part);
    squares = fma(value, value, squares);
  });
  const float mean = sum_lanes(squares) / static_cast<float>(n);
  return 1.0F / std::sqrt(mean + epsilon);
}

void rms_norm(const float* x, const float* weight, float epsilon, std::int64_t n,
              float* y) noexcept {
  const Lanes inverse = broadcast(inverse_root(x, n, epsilon));
  for_each_vector(n, [&](std::int64_t i, auto part) {
    store(y + i, load(weight + i, part) * (load(x + i, part) * inverse), part);
  });
}

void rms_norm_gradient(const RmsNorm& norm, const float* dy, float* dx) noexcept {
  Lanes sums = broadcast(0);
  for_each_vector(norm.n, [&](std::int64_t i, auto part) {
    const Lanes scaled = load(dy + i, part) * load(norm.weight + i, part);
    sums = fma(scaled, load(norm.x + i, part), sums);
  });
  const float inverse = inverse_root(norm.x, norm.n, norm.epsilon);
  const float share = inverse * inverse * sum_lanes(sums) / static_cast<float>(norm.n);
  for_each_vector(norm.n, [&](std::int64_t i, auto part) {
    const Lanes scaled = load(dy + i, part) * load(norm.weight + i, part);
    const Lanes centred = fma(load(norm.x + i, part), broadcast(-share), scaled);
    store(dx + i, centred * broadcast(inverse), part);
  });
}

void to_bf16(const float* x, std::int64_t n, BFloat16* y) noexcept {
  for_each_vector(n, [&](std::int64_t i, auto part) { store(y + i, load(x + i, part), part); });
}

void gate_activations(const Gating& gating, const float* up, std::int64_t n, float* gate) noexcept {
  const Lanes limit = broadcast(gating.limit);
  const Lanes least = broadcast(-gating.limit);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes g = min(limit, load(gate + i, part));  // NaN stays
    const Lanes u = max(least, min(limit, load(up + i, part)));
    const Lanes sigmoid_inverse = broadcast(1.0F) + exp(broadcast(0) - broadcast(gating.alpha) * g);
    store(gate + i, (g / sigmoid_inverse) * (u + broadcast(gating.offset)), part);
  });
}

/// From element i on, where a row of floats becomes one of other elements, no longer ones.
template <typename Element, typename Part>
inline void store_as(float* row, std::int64_t i, Lanes value, Part part) {
  store(reinterpret_cast<Element*>(row) + i, value, part);
}

/// `Element`: of what the row becomes.
template <typename Element>
float gate_gradient(const Gating& gating, const GatedRow& row, std::int64_t n) noexcept {
  const Lanes limit = broadcast(gating.limit);
  const Lanes least = broadcast(-gating.limit);
  const Lanes zero = broadcast(0);
  const Lanes one = broadcast(1.0F);
  const Lanes alpha = broadcast(gating.alpha);
  Lanes sum = zero;
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes gate = load(row.gate + i, part);
    const Lanes up = load(row.up + i, part);
    const Lanes d = load(row.inner + i, part);
    const Lanes g = min(limit, gate);
    const Lanes u = max(least, min(limit, up));
    const Lanes sigmoid = one / (one + exp(zero - alpha * g));
    const Lanes slope = sigmoid * fma(alpha * g, one - sigmoid, one);  // of g * sigmoid(alpha * g)
    const Lanes factor = u + broadcast(gating.offset);
    const Lanes dg = d * (factor * slope);
    const Lanes du = d * (g * sigmoid);
    const Lanes inner = (g * sigmoid) * factor;
    store_as<Element>(row.gate, i, select(less(g, gate), zero, dg), part);
    store_as<Element>(row.up, i, select(less(u, up), zero, select(less(up, u), zero, du)), part);
    store_as<Element>(row.inner, i, inner, part);
    sum = fma(d, inner, sum);
  });
  return sum_lanes(sum);
}

void add(const float* x, std::int64_t n, float* y) noexcept {
  for_each_vector(n, [&](std::int64_t i, auto part) {
    store(y + i, load(y + i, part) + load(x + i, part), part);
  });
}

void add_scaled(const float* x, float scale, std::int64_t n, float* y) noexcept {
  for_each_vector(n, [&](std::int64_t i, auto part) {
    store(y + i, fma(broadcast(scale), load(x + i, part), load(y + i, part)), part);
  });
}

/// Of RotaryForm::pairs.
inline void rotate_neighbours(const RotaryAngles& angles, float direction, float* head) {
  for (std::int64_t i = 0; i < angles.half; ++i) {
    const float cosine = angles.cosines[i];
    const float sine = angles.sines[i] * direction;
    const float first = head[2 * i];
    const float second = head[2 * i + 1];
    head[2 * i] = first * cosine - second * sine;
    head[2 * i + 1] = second * cosine + first * sine;
  }
}

/// `direction` 1 or -1.
inline void rotate_by(const RotaryAngles& angles, float direction, float* head) {
  if (angles.form == RotaryForm::pairs) return rotate_neighbours(angles, direction, head);
  float* const others = head + angles.half;
  for_each_vector(angles.half, [&](std::int64_t i, auto part) {
    const Lanes cosine = load(angles.cosines + i, part);
    const Lanes sine = load(angles.sines + i, part) * broadcast(direction);
    const Lanes first = load(head + i, part);
    const Lanes second = load(others + i, part);
    store(head + i, first * cosine - second * sine, part);
    store(others + i, second * cosine + first * sine, part);
  });
}

void rotate(const RotaryAngles& angles, float* head) noexcept {
  rotate_by(angles, 1, head);
}

void rotate_back(const RotaryAngles& angles, float* head) noexcept {
  rotate_by(angles, -1, head);
}

bool all_finite(const float* x, std::int64_t n) noexcept {
  Lanes zeros = broadcast(0);  // times infinity, or NaN, makes NaN
  for_each_vector(
      n, [&](std::int64_t i, auto part) { zeros = fma(load(x + i, part), broadcast(0), zeros); });
  return sum_lanes(zeros) == 0;
}

void sigmoid(float* x, std::int64_t n) noexcept {
  const Lanes one = broadcast(1.0F);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    store(x + i, one / (one + exp(broadcast(0) - load(x + i, part))), part);
  });
}

void softmax(float* x, std::int64_t n) noexcept {
  const Lanes shift = broadcast(max_of(x, n));
  Lanes sum = broadcast(0);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes value = exp(load(x + i, part) - shift);
    store(x + i, value, part);
    sum = sum + select(part, value, broadcast(0));
  });
  const Lanes total = broadcast(sum_lanes(sum));
  for_each_vector(
      n, [&](std::int64_t i, auto part) { store(x + i, load(x + i, part) / total, part); });
}

float log_sum_exp(const float* x, std::int64_t n) noexcept {
  const float max = max_of(x, n);
  const float shift = std::isfinite(max) ? max : 0.0F;  // infinities pass through exp and log
  Lanes sum = broadcast(0);
  for_each_vector(n, [&](std::int64_t i, auto part) {
    const Lanes value = exp(load(x + i, part) - broadcast(shift));
    sum = sum + select(part, value, broadcast(0));
  });
  return static_cast<float>(shift + natural_log(sum_lanes(sum)));
}

constexpr VectorKernels make_vector_kernels(Isa isa, const char* name) {
  return {.isa = isa,
          .name = name,
          .rms_norm = rms_norm,
          .rms_norm_gradient = rms_norm_gradient,
          .to_bf16 = to_bf16,
          .gate = gate_activations,
          .gate_gradient = gate_gradient<float>,
          .gate_gradient_bf16 = gate_gradient<BFloat16>,
          .add = add,
          .add_scaled = add_scaled,
          .rotate = rotate,
          .rotate_back = rotate_back,
          .all_finite = all_finite,
          .sigmoid = sigmoid,
          .softmax = softmax,
          .log_sum_exp = log_sum_exp,
          .gradients = make_gradient_kernels(),
          .delta = make_delta_kernels(),
          .delta_gradient = make_delta_gradient_kernels()};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
