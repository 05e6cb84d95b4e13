#include "src/model/linear.h"

namespace moesaic {
namespace {

GemmOutput float_output(MatrixView<float> y) {
  return {.data = reinterpret_cast<std::byte*>(y.data()), .stride_bytes = y.stride() * 4};
}

}  // namespace

void Linear::forward(const PackedMatrix& weights, std::span<const float> bias,
                     MatrixView<const float> x, MatrixView<float> y) {
  rows_.clear();
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    rows_.push_back(reinterpret_cast<const std::byte*>(x.row(row).data()));
  }
  const GemmGroup group{
      .num_rows = x.rows(), .weights = weights, .bias = bias.empty() ? nullptr : bias.data()};
  gemm_.run({.rows = rows_.data(), .num_rows = x.rows(), .depth = weights.depth}, {&group, 1},
            float_output(y));
}

void Linear::gated_mlp(const MlpWeights& weights, MatrixView<const float> x, MatrixView<float> y) {
  const std::int64_t gated_bytes = weights.gate.rows * element_bytes(precision_);
  gated_.reserve(x.rows() * gated_bytes);
  rows_.clear();
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    rows_.push_back(reinterpret_cast<const std::byte*>(x.row(row).data()));
  }
  const GemmGroup gate_up{.num_rows = x.rows(), .weights = weights.gate, .up = weights.up};
  gemm_.run({.rows = rows_.data(), .num_rows = x.rows(), .depth = weights.gate.depth},
            {&gate_up, 1},
            {.data = gated_.data(),
             .stride_bytes = gated_bytes,
             .element = activation_element(precision_)});
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    rows_[static_cast<std::size_t>(row)] = gated_.data() + row * gated_bytes;
  }
  const GemmGroup down{.num_rows = x.rows(), .weights = weights.down};
  gemm_.run({.rows = rows_.data(),
             .num_rows = x.rows(),
             .depth = weights.down.depth,
             .element = activation_element(precision_)},
            {&down, 1}, float_output(y));
}

}  // namespace moesaic
