#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "src/model/family.h"
#include "src/model/model_adapters.h"
#include "src/model/transformer.h"
#include "src/parallel/process_grid.h"

namespace moesaic {

/// How a test runs a model.
struct EngineSetup {
  std::string directory;
  Precision precision = Precision::bf16;
  WantedLayouts layouts{};
  StoredWeights stored{};
  Isa isa = Isa::scalar;
  Int4Activations int4_activations = Int4Activations::bf16;
  int threads = 1;  // of each rank
  int expert_replicas = 1;
  MoeOptions moe{};
  std::optional<ModelPlacement> placement{};  // nothing: contiguous
  std::string lora{};                         // directory of an adapter; empty: none
  /// Or adapters that a test makes itself, of all sites that the model has. The packed copy is made
  /// for it.
  std::function<AdapterSet(std::vector<AdapterSite> sites, const HeldExperts& held)> adapters{};
  std::vector<Family> families = known_families();
};

/// One rank's engine, loaded from a checkpoint directory.
class TestEngine {
 public:
  /// Collective over `world`.
  TestEngine(const EngineSetup& setup, Communicator& world);

  [[nodiscard]] Transformer& transformer() { return *transformer_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const ModelWeights& weights() const { return *weights_; }
  [[nodiscard]] const AdapterSet& adapters() const { return *adapters_; }

 private:
  ModelConfig config_;
  ThreadPool pool_;
  ProcessGrid grid_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<AdapterSet> adapters_;
  std::unique_ptr<Transformer> transformer_;
};

/// Each rank has as many experts of a layer as in contiguous slices, but others in each.
[[nodiscard]] ModelPlacement shuffled_placement(const ModelConfig& config, int ranks);

/// Logits [tokens, vocab] of `tokens`, `chunk` of them a forward pass, the cache told of
/// `prompt_tokens`. The other ranks of the group must make as many forward passes.
[[nodiscard]] std::vector<float> run_sequence(Transformer& transformer,
                                              std::span<const std::int32_t> tokens,
                                              std::int64_t chunk, std::int64_t prompt_tokens);

/// The same of rank 0, which has the tokens, of `ranks` thread ranks that all load the model.
/// `chunk` 0: all tokens in one pass; `prompt_tokens` -1: all of them.
[[nodiscard]] std::vector<float> logits_on_ranks(int ranks, const EngineSetup& setup,
                                                 std::span<const std::int32_t> tokens,
                                                 std::int64_t chunk = 0,
                                                 std::int64_t prompt_tokens = -1);

/// A file of golden logits.
struct GoldenLogits {
  std::vector<std::int32_t> input_ids;
  std::vector<float> logits;           // [tokens, vocab], one call
  std::vector<float> logits_stepwise;  // [tokens, vocab], a token a call; empty if not recorded
};
[[nodiscard]] GoldenLogits read_golden_logits(const std::string& file);

/// |a - b| / |b|, L2.
[[nodiscard]] double relative_l2(std::span<const float> a, std::span<const float> b);

/// The instruction sets of the tile order that this CPU has.
[[nodiscard]] std::vector<Isa> tile_order_isas();

}  // namespace moesaic
