#pragma once

#include "base/buffer.h"
#include "kernels/mlp_weights.h"
#include "src/lora/adapter_products.h"

namespace moesaic {

/// A gated MLP, and an adapter of each of its matrices or null.
struct AdaptedMlp {
  MlpWeights weights{};
  const Adapter* gate = nullptr;
  const Adapter* up = nullptr;
  const Adapter* down = nullptr;
};

/// Rows [first_row, first_row + num_rows) of an input, and the MLP that they go through.
struct MlpRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  const AdaptedMlp* mlp = nullptr;
};

/// What a backward pass needs of the forward pass besides its input.
class MlpStash {
 public:
  /// Makes room; contents are lost.
  void resize(std::int64_t rows, std::int64_t width) {
    rows_ = rows;
    width_ = width;
    gate_.reserve(rows * width);
    up_.reserve(rows * width);
  }
  [[nodiscard]] std::int64_t width() const noexcept { return width_; }
  /// [rows, width] before gating.
  [[nodiscard]] MatrixView<float> gate_rows() const { return gate_.matrix(rows_, width_); }
  [[nodiscard]] MatrixView<float> up_rows() const { return up_.matrix(rows_, width_); }
  [[nodiscard]] std::int64_t bytes() const noexcept { return 4 * (gate_.size() + up_.size()); }

 private:
  std::int64_t rows_ = 0;
  std::int64_t width_ = 0;
  Buffer<float> gate_;
  Buffer<float> up_;
};

/// A forward pass of rows through MLPs of one width.
struct MlpForward {
  RowSource x;                      // [rows, hidden]
  std::span<const MlpRows> groups;  // no two share a row
  MatrixView<float> y;              // [rows, hidden] overwritten
  MlpStash* keep = nullptr;
};

/// A backward pass through the same.
struct MlpBackward {
  RowSource x;
  std::span<const MlpRows> groups;
  RowSource dy;  // [rows, hidden]
  /// [rows] or null: the loss's gradient by y is dy times it. It is in the gradients of adapters,
  /// not in dx.
  const float* row_weights = nullptr;
  MlpStash& stash;       // used up
  MatrixView<float> dx;  // [rows, hidden] overwritten
  /// [rows] or null, overwritten: <dy, y>, which is the gradient by the row's weight.
  float* weight_gradients = nullptr;
  std::span<const SampleRange> samples;  // ascending, each within one group
};

/// Runs MLPs with adapters, forward and backward, on the threads of a Compute. Keeps its scratch
/// memory between calls; one object a rank.
class MlpProducts {
 public:
  /// Both must outlive this.
  MlpProducts(const Compute& compute, GroupedGemm& gemm, AdapterProducts& adapters)
      : compute_(compute), gemm_(gemm), adapters_(adapters) {}

  void forward(const MlpForward& pass);
  void backward(const MlpBackward& pass, AdapterGradients& gradients);

 private:
  using Matrix = PackedMatrix MlpWeights::*;
  using Addition = const Adapter* AdaptedMlp::*;

  [[nodiscard]] std::span<const AdapterRows> adapted(std::span<const MlpRows> groups,
                                                     Addition addition);
  [[nodiscard]] MatrixView<const float> addend(const MlpForward& pass, Addition addition,
                                               Buffer<float>& memory);
  void make_groups(const MlpForward& pass);
  void pass_back(const RowSource& dy, std::span<const MlpRows> groups, Matrix matrix,
                 const AdapterSum& dx);
  void pass_back_gating(const MlpBackward& pass, MatrixView<float> inner);

  Compute compute_;
  GroupedGemm& gemm_;
  AdapterProducts& adapters_;
  std::vector<MlpGroup> mlp_groups_;
  std::vector<GemmGroup> gemm_groups_;
  std::vector<AdapterRows> adapter_rows_;
  Buffer<float> gate_addend_;      // [rows, width]
  Buffer<float> up_addend_;        // [rows, width]
  Buffer<std::byte> activations_;  // [rows, width] gated, as the down projection reads them
  Buffer<float> inner_;            // [rows, width] gradients of the gated activations, then these
  std::vector<const std::byte*> activation_rows_;
  MatrixRows inner_rows_;
};

}  // namespace moesaic
