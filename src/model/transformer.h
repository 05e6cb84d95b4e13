#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "src/model/batch.h"
#include "src/model/kept_pass.h"
#include "src/model/loss_head.h"
#include "src/model/model_config.h"
#include "src/model/model_weights.h"
#include "src/moe/moe_layer.h"
#include "src/moe/moe_options.h"
#include "src/parallel/phase_times.h"

namespace moesaic {

/// Throws Error{usage} if layers of the model cannot do what `options` ask for.
void check_moe_options(const MoeOptions& options, const ModelConfig& config);

/// The transformer of one rank: its copy of (or view on) the dense weights, its slice of the
/// experts.
///
/// The logits of a token depend on its sequence alone: not on the other chunks, on how a prompt is
/// cut into chunks, on the rank count or the threads.
class Transformer {
 public:
  /// `config`, `weights` and the ranks of `experts` must outlive this. Collective.
  /// Throws as check_moe_options().
  Transformer(const ModelConfig& config, const ModelWeights& weights, const ExpertGroup& experts,
              const Compute& compute);
  ~Transformer();

  /// Runs the chunks of this rank, none or many, through all layers and extends their sequences.
  /// Collective over the experts' group: every rank calls as often as every other. Returns
  /// [wanted rows, vocab] f32 logits in the order of chunks and tokens, valid until the next call.
  /// Throws Error{usage} if a token id is outside the vocabulary and Error{resource} if a pool is
  /// at its limit; all ranks should check that (Sequence::ensure) beforehand.
  MatrixView<const float> forward(std::span<const SequenceChunk> batch);

  /// Of the last forward(): the layer that made the values of `row` (of all chunks' tokens) not
  /// finite, or FiniteRows::kEmbedding; nothing if they are finite.
  [[nodiscard]] std::optional<std::int64_t> damaged_by(std::int64_t row) const;

  // Training. The batch is whole samples: chunks of sequences that are empty and stay so, since
  // each is run once.

  /// Runs the chunks through all layers and keeps what backward() needs. Collective over the
  /// experts' group. Throws Error{usage} unless options are exact.
  void forward_kept(std::span<const SequenceChunk> batch, Recompute recompute, KeptPass& kept);
  /// Losses of what forward_kept() left, and the gradients of the rows that they are of.
  [[nodiscard]] LossHead& loss_head() noexcept;
  /// Goes back through all layers with the gradient `dx` [rows, hidden] by kept.out, which is used
  /// up with `kept`; those of adapters are added, and `layer_done` is told of each layer whose all
  /// are. Collective over the experts' group.
  using LayerDone = std::function<void(std::int64_t layer)>;
  void backward(KeptPass& kept, MatrixView<float> dx, AdapterGradients& adapters,
                const LayerDone& layer_done = {});

  [[nodiscard]] const ModelConfig& config() const noexcept;
  [[nodiscard]] Precision precision() const noexcept;
  [[nodiscard]] const Compute& compute() const noexcept;

  /// Since the last reset.
  [[nodiscard]] const PhaseTimes& times() const noexcept;
  [[nodiscard]] ExpertLoad load() const noexcept;
  /// Positions that went through the layers; those of shared pages did not.
  [[nodiscard]] std::int64_t computed_positions() const noexcept;
  [[nodiscard]] RowCounters traffic() const;  // of rows and results of experts
  /// Choices of this rank's rows, of the layers that have experts.
  [[nodiscard]] ExpertRows expert_rows() const;
  void reset_statistics();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moesaic
