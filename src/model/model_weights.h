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
#include "src/checkpoint/model_config.h"
#include "src/model/model_files.h"
#include "src/model/precision.h"
#include "src/model/weight_store.h"
#include "src/moe/cpu_experts.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

struct MlpWeights {
  PackedMatrix gate;  // [intermediate, hidden]
  PackedMatrix up;    // [intermediate, hidden]
  PackedMatrix down;  // [hidden, intermediate]
};

/// Vectors are f32 and empty where the family has none.
struct LayerWeights {
  std::span<const float> input_norm;           // [hidden]
  std::span<const float> post_attention_norm;  // [hidden]
  PackedMatrix qkv;                            // [q_width + 2 kv_width, hidden]
  std::span<const float> qkv_bias;             // [q_width + 2 kv_width]
  PackedMatrix o;                              // [hidden, q_width]
  std::span<const float> o_bias;               // [hidden]
  std::span<const float> q_norm;               // [head_dim] or [q_width]
  std::span<const float> k_norm;               // [head_dim] or [kv_width]

  MlpWeights dense;                    // layers that are not MoE
  PackedMatrix router;                 // [experts, hidden] f32
  std::vector<ExpertWeights> experts;  // this rank's, by slot
  MlpWeights shared;                   // shared expert; panels == nullptr if none
  PackedMatrix shared_gate;            // [1, hidden] f32
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
  const ExpertPlacement* placement = nullptr;
  int expert_rank = 0;           // this rank's place in the experts' group
  Communicator* node = nullptr;  // the ranks of this node share the dense weights and the work
  ThreadPool* pool = nullptr;
  /// Called now and then by one thread of this rank with the bytes packed so far and in all.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress;
};

/// What loading will take, known before it starts.
[[nodiscard]] WeightBytes count_weight_bytes(const ModelFiles& files, const ModelConfig& config,
                                             const LoadOptions& options);

/// Reads and packs the weights. Collective over options.node. Touches only the bytes that this rank
/// packs. Throws Error{file} for a tensor that is missing or not what the config says.
[[nodiscard]] std::unique_ptr<ModelWeights> load_model_weights(const ModelFiles& files,
                                                               const ModelConfig& config,
                                                               const LoadOptions& options);

}  // namespace moesaic
