#include "src/model/linear.h"

namespace moesaic {
namespace {

GemmOutput float_output(MatrixView<float> y) {
  return {.data = reinterpret_cast<std::byte*>(y.data()), .stride_bytes = y.stride() * 4};
}

}  // namespace

void Linear::set_rows(MatrixView<const float> x) {
  rows_.clear();
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    rows_.push_back(reinterpret_cast<const std::byte*>(x.row(row).data()));
  }
}

void Linear::forward(const PackedMatrix& weights, std::span<const float> bias,
                     MatrixView<const float> x, MatrixView<float> y) {
  set_rows(x);
  const GemmGroup group{.num_rows = x.rows(),
                        .weights = weights,
                        .epilogue = {.bias = bias.empty() ? nullptr : bias.data()}};
  gemm_.run({.rows = rows_.data(), .num_rows = x.rows(), .depth = weights.depth}, {&group, 1},
            float_output(y));
}

void Linear::gated_mlp(const MlpWeights& weights, MatrixView<const float> x, MatrixView<float> y) {
  set_rows(x);
  const MlpGroup group{.num_rows = x.rows(), .weights = weights};
  gemm_.run_mlp({.rows = rows_.data(), .num_rows = x.rows(), .depth = weights.gate.depth},
                {&group, 1}, {}, float_output(y));
}

}  // namespace moesaic
