#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/model/kv_pool.h"
#include "src/model/transformer.h"
#include "src/train/sample_set.h"

namespace moesaic {

/// Some samples that went forward and await their backward pass; owns all that was kept of them.
struct MicroBatch {
  std::vector<double> losses;  // of each sample, summed over its trained tokens
  std::int64_t rows = 0;       // tokens of all samples
  std::int64_t trained_tokens = 0;
  std::int64_t expert_rows = 0;  // that this rank's experts computed
  /// What the routers of each layer chose for this rank's tokens; without experts: nothing.
  std::vector<RouterStatistics> routers;

  std::vector<Sequence> sequences;
  KeptPass kept;
  std::vector<std::int64_t> trained_rows;  // that predict a trained token
  Buffer<float> gradients;                 // [trained rows, hidden] by kept.out
};

/// Runs whole samples through a model: losses forward, gradients of its adapters backward. Each
/// sample stands alone: positions from 0, it sees nothing of others, and what it adds to losses and
/// gradients does not depend on them. One object a rank; any number of micro-batches may await
/// their backward pass.
class SamplePass {
 public:
  /// `transformer` must outlive this.
  SamplePass(Transformer& transformer, Recompute recompute);

  /// The losses of `samples`, none or some. Collective over the experts' group, as backward() is.
  /// `dropout` has a key for each sample (dropout_sample_key). `choices`: as KeptPass has it.
  [[nodiscard]] MicroBatch forward(std::span<const TrainSample> samples,
                                   const Dropout& dropout = {}, ChosenExperts* choices = nullptr);
  /// The gradients of the summed losses are added to `gradients`. `layer_done`: as the transformer
  /// has it.
  void backward(MicroBatch batch, AdapterGradients& gradients,
                const Transformer::LayerDone& layer_done = {});
  /// The losses alone, without dropout; of what a backward pass needs the inputs of layers alone
  /// are kept.
  [[nodiscard]] MicroBatch evaluate(std::span<const TrainSample> samples);

 private:
  /// Which rows predict what.
  struct Targets {
    std::vector<std::int32_t> tokens;
    std::vector<std::int64_t> ends;  // [samples] of their rows among all
  };
  void find_targets(std::span<const TrainSample> samples, MicroBatch& batch);
  /// What a pass is run with.
  struct Conditions {
    bool keeps = false;
    Dropout dropout{};
    ChosenExperts* choices = nullptr;
  };
  MicroBatch run(std::span<const TrainSample> samples, const Conditions& conditions);
  static void set_dropout(std::span<const TrainSample> samples, const Dropout& dropout,
                          KeptPass& kept);
  void add_losses(MicroBatch& batch) const;

  Transformer& transformer_;
  Recompute recompute_;
  KvPool pool_;
  std::vector<KeptPass> spare_;  // memory for the next passes
  Targets targets_;
  std::vector<float> losses_;    // of the rows
  Buffer<float> row_gradients_;  // [rows, hidden]
};

}  // namespace moesaic
