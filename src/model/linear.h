#pragma once

#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "kernels/grouped_gemm.h"
#include "kernels/mlp_weights.h"

namespace moesaic {

/// Dense products of a batch's rows with one matrix. Keeps scratch memory; one object a rank.
class Linear {
 public:
  explicit Linear(GroupedGemm& gemm) : gemm_(gemm) {}

  /// y [rows, n] = x [rows, k] weights^T + bias; bias may be empty.
  void forward(const PackedMatrix& weights, std::span<const float> bias, MatrixView<const float> x,
               MatrixView<float> y);
  /// y [rows, hidden] = down(silu(gate(x)) * up(x)).
  void gated_mlp(const MlpWeights& weights, MatrixView<const float> x, MatrixView<float> y);

 private:
  void set_rows(MatrixView<const float> x);

  GroupedGemm& gemm_;
  std::vector<const std::byte*> rows_;
};

}  // namespace moesaic
