#pragma once

#include <span>

#include "base/matrix_view.h"
#include "src/lora/adapted_matrix.h"
#include "src/lora/adapted_mlp.h"
#include "src/model/stash.h"
#include "src/model/weight_set.h"

namespace moesaic {

/// Dense products of a batch's rows with one matrix and its adapters. Keeps scratch memory; one
/// object a rank.
class Linear {
 public:
  /// All must outlive this.
  Linear(GroupedGemm& gemm, AdapterProducts& adapters, MlpProducts& mlps)
      : adapters_(adapters), matrices_(gemm, adapters), mlps_(mlps) {}

  /// y [rows, n] = x [rows, k] weight^T + bias, and what adapters add; bias may be empty.
  void forward(const Weight& weight, std::span<const float> bias, MatrixView<const float> x,
               MatrixView<float> y);
  /// From now on, of the rows of all products with adapters.
  void set_dropout(const Dropout& dropout) { dropout_ = dropout; }
  /// y [rows, hidden] = down(silu(gate(x)) * up(x)). What backward() needs goes to `keep`.
  void gated_mlp(const AdaptedMlp& mlp, MatrixView<const float> x, MatrixView<float> y,
                 MlpStash* keep = nullptr);

  /// dx = dy weight, and the gradients of adapters: `part` has the x [rows, k] and dy [rows, n] of
  /// this product.
  void backward(const Weight& weight, const PartBackward& part);
  /// dx += dy weight.
  void add_input_gradient(const Weight& weight, MatrixView<const float> dy, MatrixView<float> dx);

  /// What a row's result counts for, and the gradient of that.
  struct RowWeights {
    const float* weights = nullptr;  // [rows]; null: 1
    float* gradients = nullptr;      // [rows] overwritten; null: not wanted
  };
  /// The same of gated_mlp(), whose `stash` is used up. dx is not yet weighted.
  void gated_mlp_backward(const AdaptedMlp& mlp, const PartBackward& part, MlpStash& stash,
                          const RowWeights& rows = {nullptr, nullptr});

 private:
  AdapterProducts& adapters_;
  MatrixProducts matrices_;
  MlpProducts& mlps_;
  Dropout dropout_;
  MatrixRows x_rows_;
  MatrixRows dy_rows_;
};

}  // namespace moesaic
