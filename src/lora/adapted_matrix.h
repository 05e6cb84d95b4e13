#pragma once

#include "base/buffer.h"
#include "src/lora/adapter_products.h"

namespace moesaic {

/// A forward pass of rows through one matrix and its adapter.
struct MatrixForward {
  RowSource x;  // [rows, in]
  PackedMatrix weights{};
  const Adapter* adapter = nullptr;  // or null
  const float* bias = nullptr;       // [out] or null
  MatrixView<float> y;               // [rows, out] overwritten
  Dropout dropout{};
};

/// A backward pass through the same.
struct MatrixBackward {
  RowSource x;
  PackedMatrix weights{};
  const Adapter* adapter = nullptr;
  RowSource dy;                          // [rows, out]
  MatrixView<float> dx;                  // [rows, in] overwritten
  std::span<const SampleRange> samples;  // ascending
  Dropout dropout{};                     // as in the forward pass
};

/// Runs matrices with adapters, forward and backward: what an adapter adds goes along with the
/// product. Keeps its scratch memory between calls; one object a rank.
class MatrixProducts {
 public:
  /// Both must outlive this.
  MatrixProducts(GroupedGemm& gemm, AdapterProducts& adapters) : gemm_(gemm), adapters_(adapters) {}

  void forward(const MatrixForward& pass);
  void backward(const MatrixBackward& pass, AdapterGradients& gradients);

 private:
  template <typename Pass>
  void project(const Pass& pass, MatrixView<float> inner);
  void pass_back(const MatrixBackward& pass, MatrixView<float> back);
  void add_gradients(const MatrixBackward& pass, MatrixView<float> back,
                     AdapterGradients& gradients);

  GroupedGemm& gemm_;
  AdapterProducts& adapters_;
  Buffer<float> inner_;  // [rows, rank] scale x A^T
  Buffer<float> back_;   // [rows, rank] scale dy B
};

}  // namespace moesaic
