#pragma once

#include <cstdint>

#include "base/rounding.h"
#include "kernels/attention_gradient.h"
#include "kernels/delta_kernels.h"

namespace moesaic {

template <typename Element>
using DeltaRows = AttentionGradientArgs::Rows<Element>;

/// Rows of a sample that go back together, counted from its first.
inline constexpr std::int64_t kDeltaChunk = 64;

/// What decays below this counts as zero: CPUs take a hundred times as long for subnormal numbers,
/// and no gradient shows it.
inline constexpr float kLeastDelta = 0x1p-64F;

/// Back through a convolution of a whole sample, before whose first row are zeros.
struct DeltaConvolutionGradient {
  DeltaRows<const float> x;        // [rows, channels]
  DeltaRows<const float> weights;  // [taps, channels]
  std::int64_t taps = 0;
  std::int64_t channels = 0;
  std::int64_t rows = 0;
  DeltaRows<float> gradient;  // [rows, channels] the loss's, by y; becomes that by x
};

/// A row that scale_to_unit() made of another.
struct UnitRow {
  const float* unit = nullptr;  // [n]
  float scale = 1;
  float factor = 1;  // what it returned
  std::int64_t n = 0;
};

/// A row that gated_norm() got.
struct GatedNormRow {
  const float* weight = nullptr;  // [n]
  float epsilon = 0;
  const float* gate = nullptr;  // [n]
  const float* y = nullptr;     // [n]
  std::int64_t n = 0;
};

/// Back through the state S of a value head, for some of its columns and some rows, the last one
/// first. With the gradient D of S, by what the rows after it and its own result make of it:
///   D += q dy^T,  de = D^T k,  D = fma(k, -(b g) de, g D),
/// where D^T k is summed as S^T k is. After the first row, elements of D below kLeastDelta are 0.
struct DeltaRuleGradient {
  const float* queries = nullptr;           // [rows, key_dim]
  const float* keys = nullptr;              // [rows, key_dim]
  DeltaRows<const float> result_gradients;  // dy [rows, columns]
  const float* decays = nullptr;            // [rows, scalar_stride] of which the first
  const float* rates = nullptr;             // the same
  std::int64_t scalar_stride = 0;
  std::int64_t key_dim = 0;
  std::int64_t columns = 0;
  std::int64_t rows = 0;
  float* state_gradient = nullptr;   // by the state after these rows; becomes that before them
  DeltaRows<float> error_gradients;  // de [rows, columns]
};

/// What is left when the errors e and their gradients are known, for up to kDeltaChunk rows of a
/// value head. With d(t, s) = g(s + 1) ... g(t), d(t) = d(t, 0) g(0), or 0 if below kLeastDelta, S
/// before the first row and D, the gradient of the state after the last row n:
///   dv(t) = b(t) de(t)
///   dq(t) = d(t) S dy(t) + sum over s <= t of d(t, s) (dy(t) e(s)) k(s)
///   dk(s) = d(n, s) D e(s) - d(s) S dv(s) + sum over t >= s of d(t, s) (dy(t) e(s)) q(t)
///           - sum over t > s of d(t, s) (dv(t) e(s)) k(t) - sum over t < s of d(s, t) (dv(s) e(t))
///           k(t)
/// That of ln g(t) is the product of the state before row t and its gradient: p(n) = <S, D> after
/// the last row and p(t - 1) = p(t) + y(t) dy(t) - v(t) dv(t), since what scales a state scales
/// what comes of it.
struct DeltaChunk {
  const float* queries = nullptr;           // [rows, key_dim]
  const float* keys = nullptr;              // [rows, key_dim]
  DeltaRows<const float> values;            // [rows, value_dim]
  DeltaRows<const float> results;           // [rows, value_dim]
  DeltaRows<const float> result_gradients;  // [rows, value_dim]
  const float* errors = nullptr;            // [rows, value_dim]
  const float* error_gradients = nullptr;   // [rows, value_dim]
  const float* decays = nullptr;            // [rows, scalar_stride] of which the first
  const float* rates = nullptr;             // the same
  std::int64_t scalar_stride = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t rows = 0;
  const float* start = nullptr;         // the state before the first row; null: zeros
  const float* end = nullptr;           // that after the last one
  const float* end_gradient = nullptr;  // its gradient; null: zeros, and `end` is not read
  float* scratch = nullptr;             // delta_chunk_floats()
  DeltaRows<float> query_gradients;     // [rows, key_dim] added to
  DeltaRows<float> key_gradients;       // [rows, key_dim] added to
  DeltaRows<float> value_gradients;     // [rows, value_dim] overwritten
  float* decay_gradients = nullptr;     // [rows, scalar_stride] by ln g
  float* rate_gradients = nullptr;      // [rows, scalar_stride] by what b is the sigmoid of
};

/// Where the parts of DeltaChunk::scratch begin, in floats. Rows are [kDeltaChunk, key_width], rows
/// by rows [kDeltaChunk, kDeltaChunk], panels [strips of 16 rows][value_dim][16].
struct DeltaChunkScratch {
  constexpr DeltaChunkScratch(std::int64_t key_dim, std::int64_t value_dim)
      : key_width(round_up(key_dim, kDeltaColumns)),
        value_width(round_up(value_dim, kDeltaColumns)),
        queries(0),
        keys(queries + kDeltaChunk * key_width),
        query_sums(keys + kDeltaChunk * key_width),
        key_sums(query_sums + kDeltaChunk * key_width),
        start_sums(key_sums + kDeltaChunk * key_width),
        value_rows(start_sums + kDeltaChunk * key_width),
        result_panels(value_rows + kDeltaChunk * value_width),
        error_panels(result_panels + kDeltaChunk * value_width),
        value_panels(error_panels + kDeltaChunk * value_width),
        state_panels(value_panels + kDeltaChunk * value_width),
        decays(state_panels + key_width * value_width),
        result_products(decays + kDeltaChunk * kDeltaChunk),
        value_products(result_products + kDeltaChunk * kDeltaChunk),
        end(value_products + kDeltaChunk * kDeltaChunk) {}

  std::int64_t key_width;
  std::int64_t value_width;
  std::int64_t queries;
  std::int64_t keys;
  std::int64_t query_sums;
  std::int64_t key_sums;
  std::int64_t start_sums;  // S dv
  std::int64_t value_rows;  // [kDeltaChunk, value_width] on their way to panels
  std::int64_t result_panels;
  std::int64_t error_panels;
  std::int64_t value_panels;
  std::int64_t state_panels;     // a state across: [key_width / 16][value_width][16]
  std::int64_t decays;           // d(t, s), rows by rows
  std::int64_t result_products;  // d(t, s) (dy(t) e(s))
  std::int64_t value_products;   // -d(t, s) (dv(t) e(s))
  std::int64_t end;
};

[[nodiscard]] constexpr std::int64_t delta_chunk_floats(std::int64_t key_dim,
                                                        std::int64_t value_dim) {
  return DeltaChunkScratch(key_dim, value_dim).end;
}

/// The way back through DeltaKernels, in f32: the same bits with every instruction set. Sums run
/// over what they are said to run over, ascending, unless they are of a row's elements, which run
/// as in the other vector kernels.
struct DeltaGradientKernels {
  void (*convolve)(const DeltaConvolutionGradient& convolution) noexcept;
  /// gradient[i], by what scale_to_unit() made, becomes that by what it got:
  /// factor * fma(unit[i], -(s / scale^2), gradient[i]) with s the sum of unit times gradient.
  void (*unit)(const UnitRow& row, float* gradient) noexcept;
  /// x[i] = -exp(logs[i]) * sigmoid(x[i] + bias[i]), in place: the gradient of the logarithm of
  /// what decays() makes of x[i].
  void (*decay_slopes)(const float* logs, const float* bias, std::int64_t n, float* x) noexcept;
  /// gradient[i], by what gated_norm() made, becomes that by y[i]; gate_gradient[i] that by
  /// gate[i].
  void (*gated_norm)(const GatedNormRow& row, float* gradient, float* gate_gradient) noexcept;
  void (*delta_rule)(const DeltaRuleGradient& rule) noexcept;
  void (*chunk)(const DeltaChunk& chunk) noexcept;
};

}  // namespace moesaic
