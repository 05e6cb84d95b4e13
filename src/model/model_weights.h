#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "kernels/packed_matrix.h"
#include "src/checkpoint/matrix_source.h"
#include "src/model/model_config.h"
#include "src/model/model_files.h"
#include "src/model/precision.h"
#include "src/model/weight_set.h"
#include "src/model/weight_store.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

struct LayerWeights {
  std::span<const float> input_norm;           // [hidden]
  std::span<const float> post_attention_norm;  // [hidden]
  WeightSet mixer;
  WeightSet feed_forward;  // experts: this rank's, by slot
};

/// What loading took.
struct LoadReport {
  std::int64_t read_bytes = 0;  // of the files, by this rank
  double seconds = 0;
  WeightBytes weights;
};

/// All weights of one rank, packed: its experts in its own memory, the rest in memory shared by the
/// ranks of a node. The embedding is read from the mapped file, whose pages the node shares too.
struct ModelWeights {
  Precision precision = Precision::bf16;
  MatrixSource embedding;  // [vocab, hidden]
  std::span<const float> final_norm;
  PackedMatrix lm_head;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::optional<ModelPlacement> placement;  // by which the experts of layers are this rank's
  LoadReport report;
  /// Matrices that could not keep the layout of the checkpoint, and why.
  std::vector<std::string> notes;

  // Owners of the memory that the members above point into.
  ModelFiles files;
  std::shared_ptr<SharedMemory> node_memory;
  ByteBuffer rank_memory;
};

/// How this rank takes part in loading.
struct LoadOptions {
  Precision precision = Precision::bf16;
  WantedLayouts layouts;
  StoredWeights stored;
  const ExpertMask* on_device = nullptr;  ///< experts for this rank's GPU; null: none
  WeightSink* device = nullptr;           ///< its memory, which outlives the weights
  InputScales input_scales = InputScales::none;
  std::optional<std::int64_t> only_layer{};  ///< as WeightRequest
  const ModelPlacement* placement = nullptr;
  int expert_rank = 0;           // this rank's place in the experts' group
  Communicator* node = nullptr;  // the ranks of this node share the dense weights and the work
  Communicator* world =
      nullptr;  // all ranks that load, which wait for each other; or those of node
  ThreadPool* pool = nullptr;
  /// Called now and then by one thread of this rank with the bytes packed so far and in all.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress;
  LongWork::Notice waiting{};  ///< called now and then while this rank waits for others
};

/// Loads the weights of one rank. What that takes is known before it starts.
class ModelLoader {
 public:
  /// Plans the weights: what there is, how it is packed, where it goes. `options` and what it
  /// points to must outlive this. Throws Error{file} for a tensor that is missing or not what the
  /// config says.
  ModelLoader(const ModelFiles& files, const ModelConfig& config, const LoadOptions& options);

  [[nodiscard]] const WeightBytes& bytes() const noexcept { return store_->bytes(); }
  /// As WeightStore has it.
  void for_each_expert(
      const std::function<void(const PlannedWeight& weight, std::int64_t bytes)>& call) const {
    store_->for_each_expert(call);
  }
  /// The weights without their bytes: layouts and sizes. Until load().
  [[nodiscard]] const ModelWeights& planned() const noexcept { return *weights_; }
  /// Reads and packs the weights, once. Collective over options.world. Touches only the bytes that
  /// this rank packs.
  [[nodiscard]] std::unique_ptr<ModelWeights> load();

 private:
  const LoadOptions& options_;
  std::unique_ptr<ModelWeights> weights_;  // that the store's targets are in
  std::unique_ptr<WeightStore> store_;
};

/// The same at once.
[[nodiscard]] std::unique_ptr<ModelWeights> load_model_weights(const ModelFiles& files,
                                                               const ModelConfig& config,
                                                               const LoadOptions& options);

}  // namespace moesaic
