#pragma once

#include <array>
#include <memory>

#include "src/model/feed_forward.h"
#include "src/model/kept_pass.h"
#include "src/model/model_weights.h"
#include "src/model/token_mixer.h"

namespace moesaic {

/// x += mixer(norm(x)); x += feed_forward(norm(x)).
class DecoderLayer {
 public:
  struct Parts {
    std::int64_t index = 0;  // in the model
    const LayerWeights& weights;
    std::array<TokenMixer*, 2> mixers;  // of all layers of its kind, one a half-batch
    std::unique_ptr<FeedForward> feed_forward;
    std::int64_t defer = 0;  // as PartForward
  };
  /// What the parts refer to and `context` must outlive this.
  DecoderLayer(Parts parts, LayerContext& context) : parts_(std::move(parts)), context_(context) {}

  /// A batch on its way through the layers: all rows of a forward pass, or one of two half-batches
  /// in turn.
  struct Pass {
    const Batch& batch;   // that the mixer of this half began
    MatrixView<float> x;  // [rows, hidden] their residual stream
    std::size_t half = 0;
    std::int64_t first_row = 0;  // in the forward pass; there is room for all its rows
    KeptLayer* keep = nullptr;   // gets what backward() needs; of whole passes alone
    bool keeps_alone = false;    // what comes out of the layer is not wanted
  };
  /// Collective over the experts' group, as its parts, between which the other half may run.
  void forward(const Pass& pass) {
    begin(pass);
    end(pass);
  }
  void begin(const Pass& pass);
  void execute(const Pass& pass);
  void end(const Pass& pass);
  /// The same, and keeps what backward() needs.
  void forward_kept(const Batch& batch, MatrixView<float> x, Recompute recompute, KeptLayer& keep);

  /// A pass of the batch that the mixer began, back through this layer.
  struct Backward {
    const Batch& batch;
    std::span<const SampleRange> samples;
    AdapterGradients& adapters;  // those of adapters are added
    MatrixView<float> dx;        // [rows, hidden] the gradient by what comes out: that by the input
  };
  /// `kept` is used up. Collective over the experts' group.
  void backward(const Backward& pass, KeptLayer& kept);

 private:
  /// The pass's rows of a buffer of the whole forward pass.
  [[nodiscard]] static MatrixView<float> rows_of(const Pass& pass, const Buffer<float>& all);
  /// What the feed-forward part gets.
  [[nodiscard]] PartForward feed_forward_part(const Pass& pass) const;
  void copy(MatrixView<const float> from, Buffer<float>& to) const;
  void norm(MatrixView<const float> x, std::span<const float> weight, MatrixView<float> y) const;
  void add_residual(std::span<const float> y, std::span<float> x) const;  // of one row
  void make_stashes(KeptLayer& keep) const;
  /// What goes into a part from the gradient `dx` of the residual stream.
  [[nodiscard]] MatrixView<const float> part_gradient(MatrixView<const float> dx);
  /// dx += the gradient of norm(x), of that of its result in context_.normed_gradient.
  void add_norm_gradient(MatrixView<const float> x, std::span<const float> weight,
                         MatrixView<float> dx);

  Parts parts_;
  LayerContext& context_;
};

}  // namespace moesaic
