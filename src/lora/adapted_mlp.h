#pragma once

#include <array>

#include "base/buffer.h"
#include "kernels/mlp_weights.h"
#include "src/lora/adapter_products.h"
#include "src/lora/adapter_site.h"

namespace moesaic {

/// What products of an MLP's matrices add; each may be null.
struct MlpBiases {
  const float* gate = nullptr;  // [intermediate]
  const float* up = nullptr;    // [intermediate]
  const float* down = nullptr;  // [hidden]
};

/// A gated MLP, and an adapter of each of its matrices or null.
struct AdaptedMlp {
  MlpWeights weights{};
  const Adapter* gate = nullptr;
  const Adapter* up = nullptr;
  const Adapter* down = nullptr;
  MlpBiases biases{};
  Gating gating{};  ///< that of all MLPs of a pass
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
  /// Make room; contents are lost.
  void resize(std::int64_t rows, std::int64_t width);
  void resize_inner(std::int64_t rows, std::int64_t rank);

  [[nodiscard]] std::int64_t width() const noexcept { return width_; }
  /// [rows, width] before gating.
  [[nodiscard]] MatrixView<float> gate_rows() const { return gate_.matrix(rows_, width_); }
  [[nodiscard]] MatrixView<float> up_rows() const { return up_.matrix(rows_, width_); }
  /// [rows, greatest rank] scale x A^T of the part's adapters.
  [[nodiscard]] MatrixView<float> inner(MlpPart part) const {
    return inner_[static_cast<std::size_t>(part)].matrix(inner_rows_, rank_);
  }
  [[nodiscard]] std::int64_t bytes() const noexcept;

 private:
  std::int64_t rows_ = 0;
  std::int64_t width_ = 0;
  std::int64_t inner_rows_ = 0;
  std::int64_t rank_ = 0;
  Buffer<float> gate_;
  Buffer<float> up_;
  std::array<Buffer<float>, 3> inner_;
};

/// A forward pass of rows through MLPs of one width.
struct MlpForward {
  RowSource x;                      // [rows, hidden]
  std::span<const MlpRows> groups;  // no two share a row
  MatrixView<float> y;              // [rows, hidden] overwritten; null: only `keep` is wanted
  MlpStash* keep = nullptr;
  Dropout dropout{};
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
  Dropout dropout{};                     // as in the forward pass
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
  /// What goes back through one matrix and its adapters.
  struct Step {
    MlpPart part;
    RowSource x;  // as in the forward pass
    RowSource dy;
  };

  template <typename Wanted>
  [[nodiscard]] std::span<const AdapterRows> adapted(std::span<const MlpRows> groups, MlpPart part,
                                                     const Wanted& wanted);
  void make_groups(const MlpForward& pass, const MlpStash& inner);
  [[nodiscard]] RowSource run_gated(const MlpForward& pass);
  void make_back_groups(const Step& step, const MlpBackward& pass,
                        std::vector<GemmGroup>& products);
  void pass_back(std::span<const Step> steps, const MlpBackward& pass, MatrixView<float> dx);
  void pass_back_gating(const MlpBackward& pass, MatrixView<float> inner);
  void add_bias_products(const MlpBackward& pass) const;
  void add_gradients(const Step& step, const MlpBackward& pass, AdapterGradients& gradients);
  [[nodiscard]] MatrixView<float> back(MlpPart part, std::int64_t rows) const {
    return back_[static_cast<std::size_t>(part)].matrix(rows, rank_);
  }

  Compute compute_;
  GroupedGemm& gemm_;
  AdapterProducts& adapters_;
  std::vector<MlpGroup> mlp_groups_;
  std::vector<GemmGroup> gemm_groups_;
  std::array<std::vector<GemmGroup>, 2> back_groups_;  // of the steps of pass_back()
  std::vector<AdapterRows> adapter_rows_;
  MlpStash scratch_;               // of passes that keep nothing
  Buffer<std::byte> activations_;  // [rows, width] gated, as the down projection reads them
  Buffer<float> inner_;            // [rows, width] gradients of the gated activations, then these
  std::array<Buffer<float>, 3> back_;  // [rows, greatest rank] scale dy B
  std::int64_t rank_ = 0;              // the greatest of the pass
  MatrixRows activation_rows_;
  MatrixRows inner_rows_;
  MatrixRows gate_rows_;
  MatrixRows up_rows_;
};

}  // namespace moesaic
