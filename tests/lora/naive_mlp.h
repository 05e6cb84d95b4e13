#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "kernels/weight_format.h"
#include "kernels/whole_product.h"
#include "src/lora/adapted_mlp.h"

// MLPs with adapters as anyone would write them, in double precision: the truth for products and
// gradients, by finite differences.

namespace moesaic::naive {

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// [rows, cols], row by row.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<double> values;

  [[nodiscard]] double* row(std::int64_t r) { return values.data() + r * cols; }
  [[nodiscard]] const double* row(std::int64_t r) const { return values.data() + r * cols; }
  [[nodiscard]] std::vector<float> floats() const { return {values.begin(), values.end()}; }
};

/// Normal numbers that are exact in f32.
inline Matrix random_matrix(std::int64_t rows, std::int64_t cols, float deviation,
                            std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  Matrix matrix{rows, cols, std::vector<double>(static_cast<std::size_t>(rows * cols))};
  for (double& value : matrix.values) value = static_cast<double>(normal(random));
  return matrix;
}

/// Dropout of one row.
struct RowDropout {
  double share = 0;
  std::uint64_t row = 0;
};

struct LowRank {
  Matrix a;  // [rank, in]
  Matrix b;  // [out, rank]
  double scale = 0;
  std::int64_t first_row = 0;
  std::uint64_t key = 0;

  /// What is left of its input.
  [[nodiscard]] std::vector<double> left_of(std::vector<double> x,
                                            const RowDropout& dropout) const {
    const DropoutMask mask(dropout.share, dropout.row, key);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = mask.keeps(static_cast<std::int64_t>(i)) ? x[i] / (1 - dropout.share) : 0;
    }
    return x;
  }
};

inline LowRank random_adapter(std::int64_t in, std::int64_t out, std::int64_t rank,
                              std::mt19937& random) {
  const Matrix a = random_matrix(rank, in, 0.3F, random);
  const Matrix b = random_matrix(out, rank, 0.3F, random);
  return {.a = a, .b = b, .scale = 0.7, .key = static_cast<std::uint64_t>(random())};
}

inline std::vector<double> times(const Matrix& matrix, const std::vector<double>& x) {
  std::vector<double> y;
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += matrix.row(r)[i] * x[i];
    y.push_back(sum);
  }
  return y;
}

inline void add_low_rank(const LowRank& adapter, const std::vector<double>& x,
                         std::vector<double>& y, const RowDropout& dropout = {}) {
  const std::vector<double> left = adapter.left_of(x, dropout);
  const std::vector<double> added = times(adapter.b, times(adapter.a, left));
  for (std::size_t i = 0; i < added.size(); ++i) {
    y[static_cast<std::size_t>(adapter.first_row) + i] += adapter.scale * added[i];
  }
}

struct Projection {
  Matrix matrix;
  std::optional<LowRank> adapter;
  std::vector<float> bias{};  // [out] or none

  [[nodiscard]] std::vector<double> operator()(const std::vector<double>& x,
                                               const RowDropout& dropout = {}) const {
    std::vector<double> y = times(matrix, x);
    if (adapter) add_low_rank(*adapter, x, y, dropout);
    for (std::size_t i = 0; i < bias.size(); ++i) y[i] += static_cast<double>(bias[i]);
    return y;
  }
};

struct Mlp {
  Projection gate, up, down;
  Gating gating{};

  [[nodiscard]] std::vector<double> operator()(const std::vector<double>& x,
                                               const RowDropout& dropout = {}) const {
    std::vector<double> h = gate(x, dropout);
    const std::vector<double> u = up(x, dropout);
    const auto limit = static_cast<double>(gating.limit);
    const auto alpha = static_cast<double>(gating.alpha);
    const auto offset = static_cast<double>(gating.offset);
    for (std::size_t i = 0; i < h.size(); ++i) {
      const double g = std::min(h[i], limit);
      h[i] = g * sigmoid(alpha * g) * (std::clamp(u[i], -limit, limit) + offset);
    }
    return down(h, dropout);
  }
};

struct MlpForm {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  std::int64_t rank = 0;  // 0: no adapters
};

inline Mlp random_mlp(const MlpForm& form, std::mt19937& random) {
  const auto projection = [&](std::int64_t in, std::int64_t out) {
    Projection result{random_matrix(out, in, 0.4F, random), {}};
    if (form.rank > 0) result.adapter = random_adapter(in, out, form.rank, random);
    return result;
  };
  return {projection(form.hidden, form.width), projection(form.hidden, form.width),
          projection(form.width, form.hidden)};
}

/// Gives an MLP biases, and the gating of gpt-oss with limits that some values meet.
inline void add_biases(Mlp& mlp, std::mt19937& random) {
  for (Projection* const projection : {&mlp.gate, &mlp.up, &mlp.down}) {
    projection->bias = random_matrix(1, projection->matrix.rows, 0.5F, random).floats();
  }
  mlp.gating = {.limit = 2, .alpha = 1.702F, .offset = 1};
}

/// d loss / d value.
inline double derivative(double& value, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  const double kept = value;
  value = kept + kStep;
  const double above = loss();
  value = kept - kStep;
  const double below = loss();
  value = kept;
  return (above - below) / (2 * kStep);
}

inline std::vector<double> gradient(Matrix& matrix, const std::function<double()>& loss) {
  std::vector<double> result;
  for (double& value : matrix.values) result.push_back(derivative(value, loss));
  return result;
}

/// |a - b| / |b|, L2.
template <typename A>
double distance(const A& a, const std::vector<double>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

/// What the matrix counts for once it has been packed in a quantised layout.
inline Matrix rounded_to(const Layout& layout, const Matrix& matrix) {
  const std::vector<float> values = matrix.floats();
  MatrixScales scales(layout, matrix.rows, matrix.cols);
  if (MatrixScales::needed(layout.format)) scales.add_rows(0, values);
  QuantizedRows rows;
  quantize_rows(layout, {.values = values, .num_rows = matrix.rows, .depth = matrix.cols}, &scales,
                rows);
  std::vector<float> result(values.size());
  dequantize_rows(layout, rows, MatrixScales::needed(layout.format) ? scales.matrix_scale() : 1.0F,
                  result);
  return {matrix.rows, matrix.cols, {result.begin(), result.end()}};
}

/// Matrices and adapters as products read them, and the places of their gradients: adapters in
/// `format`, the matrices of MLPs in `base`.
class Packed {
 public:
  explicit Packed(Format format) : Packed(format, {.format = format}) {}
  Packed(Format format, const Layout& base) : format_(format), base_(base) {}

  [[nodiscard]] PackedMatrix pack(const Matrix& matrix) {
    memory_.push_back(pack_matrix({.format = format_}, matrix.floats(), matrix.rows, matrix.cols));
    return memory_.back().matrix;
  }

  /// With its columns packed in reverse, as PackedMatrix::order says.
  [[nodiscard]] PackedMatrix pack_reversed(Matrix matrix) {
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      std::reverse(matrix.row(r), matrix.row(r) + matrix.cols);
    }
    PackedMatrix packed = pack(matrix);
    std::vector<std::int32_t>& order = orders_.emplace_back();
    for (std::int64_t k = matrix.cols; k-- > 0;) order.push_back(static_cast<std::int32_t>(k));
    packed.order = order.data();
    return packed;
  }

  [[nodiscard]] Adapter pack(const LowRank& adapter) {
    const auto index = static_cast<std::int32_t>(places_.size());
    const FactorPlace a{next_, adapter.a.rows, adapter.a.cols};
    const FactorPlace b{next_ + a.size(), adapter.b.rows, adapter.b.cols};
    places_.push_back({a, b});
    next_ += a.size() + b.size();
    return {.a = pack(adapter.a),
            .b = pack(adapter.b),
            .scale = static_cast<float>(adapter.scale),
            .first_row = adapter.first_row,
            .index = index,
            .key = adapter.key};
  }

  /// The result keeps its adapters in `adapters` and its biases in `mlp`, which must not move.
  [[nodiscard]] AdaptedMlp pack(const Mlp& mlp, std::vector<Adapter>& adapters) {
    const auto base = [&](const Matrix& matrix) {
      memory_.push_back(pack_matrix(base_, matrix.floats(), matrix.rows, matrix.cols));
      return memory_.back().matrix;
    };
    AdaptedMlp packed{.weights = {.gate = base(mlp.gate.matrix),
                                  .up = base(mlp.up.matrix),
                                  .down = base(mlp.down.matrix)}};
    const auto add = [&](const Projection& from) -> const Adapter* {
      if (!from.adapter) return nullptr;
      adapters.push_back(pack(*from.adapter));
      return &adapters.back();
    };
    packed.gate = add(mlp.gate);
    packed.up = add(mlp.up);
    packed.down = add(mlp.down);
    const auto bias_of = [](const Projection& from) {
      return from.bias.empty() ? nullptr : from.bias.data();
    };
    packed.biases = {bias_of(mlp.gate), bias_of(mlp.up), bias_of(mlp.down)};
    packed.gating = mlp.gating;
    return packed;
  }

  [[nodiscard]] const std::vector<AdapterPlace>& places() const { return places_; }

 private:
  Format format_;
  Layout base_;
  std::vector<OwnedMatrix> memory_;
  std::deque<std::vector<std::int32_t>> orders_;
  std::vector<AdapterPlace> places_;
  std::int64_t next_ = 0;
};

/// A summed gradient as numbers.
inline std::vector<double> values_of(const AdapterGradients& gradients, const FactorPlace& place) {
  std::vector<double> values;
  for (std::int64_t i = place.first; i < place.first + place.size(); ++i) {
    values.push_back(AdapterGradients::value(gradients.sums()[static_cast<std::size_t>(i)]));
  }
  return values;
}

}  // namespace moesaic::naive
