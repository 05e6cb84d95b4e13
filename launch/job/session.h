#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/job/memory_check.h"
#include "launch/job/runtime.h"
#include "launch/job/workloads.h"
#include "src/generate/step_engine.h"
#include "src/model/model_adapters.h"
#include "src/model/model_config.h"
#include "src/model/model_files.h"
#include "src/model/model_weights.h"
#include "src/model/transformer.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

/// A model whose headers and configuration have been read and are the same on all ranks.
struct OpenModel {
  ModelFiles files;
  ModelConfig config;
  WantedLayouts layouts;                  // of --expert-format, --dense-format and --head-format
  std::optional<AdapterFiles> adapter{};  // of --lora, or what stands in for it
  std::string adapter_directory{};        // where it is; empty without one
};

/// Collective. Throws AgreedError on all ranks if a rank cannot read it, or if ranks see different
/// models.
[[nodiscard]] OpenModel read_model(const Runtime& runtime);
/// The same for a model that is going to run; throws also if there are more ranks than experts to
/// share.
[[nodiscard]] OpenModel open_model(const Runtime& runtime);
/// The same with an adapter from elsewhere than --lora says; none: without one.
[[nodiscard]] OpenModel open_model(const Runtime& runtime, std::optional<std::string> lora);

/// Says so where --ctx-size is more than the model was made for.
void warn_of_context(const Log& log, const Options& options, const ModelConfig& config);

/// The same by one process that is no rank, of the model alone: nothing is compared. Throws Error.
[[nodiscard]] OpenModel open_model(const Options& options);
[[nodiscard]] OpenModel open_model(const Options& options, ModelFiles files, ModelConfig config);

/// The ranks that share the experts, as the options say.
[[nodiscard]] ExpertGroup expert_group(const Runtime& runtime);

/// What loading took, over all ranks.
struct LoadSummary {
  std::int64_t read_bytes = 0;
  double seconds = 0;
  WeightBytes::ByFormat experts{};
  WeightBytes::ByFormat others{};  // once a model, however many ranks hold them

  [[nodiscard]] double gigabytes_per_second() const {
    return seconds > 0 ? static_cast<double>(read_bytes) / seconds / 1e9 : 0;
  }
};

/// What a verb does with a model.
struct EngineWork {
  Workload work;
  /// What it does instead where `work` needs more memory than there is.
  std::optional<Workload> smaller{};
  /// Called with the weights before they are used, to give them adapters: in the place of those of
  /// --lora.
  std::function<void(ModelWeights&)> prepare{};
};

class Progress;
class RankGpu;

/// The model, loaded and ready.
class Engine {
 public:
  /// Checks that memory suffices, then loads. Collective over all ranks. `runtime` and `model` must
  /// outlive this.
  Engine(const Runtime& runtime, const OpenModel& model, const EngineWork& work);
  Engine(const Runtime& runtime, const OpenModel& model, const Workload& work)
      : Engine(runtime, model, EngineWork{.work = work}) {}
  ~Engine();

  /// Whether there was memory for EngineWork::smaller alone.
  [[nodiscard]] bool is_smaller() const noexcept { return is_smaller_; }

  [[nodiscard]] Transformer& transformer() noexcept { return *transformer_; }
  [[nodiscard]] const ModelWeights& weights() const noexcept { return *weights_; }
  /// How its layers share experts, of which some may be on this rank's GPU.
  [[nodiscard]] ExpertGroup group(const Runtime& runtime) const;
  [[nodiscard]] const ModelPlacement& placement() const noexcept { return placement_; }
  [[nodiscard]] const LoadSummary& load() const noexcept { return load_; }
  /// Of a sequence's cache: the workload's, or less (check_memory).
  [[nodiscard]] std::int64_t capacity() const noexcept { return memory_.capacity; }
  /// What the ranks of this node were planned to need together.
  [[nodiscard]] std::int64_t planned_node_bytes() const noexcept { return memory_.node_bytes; }

 private:
  [[nodiscard]] LoadOptions load_options(const Runtime& runtime, const OpenModel& model,
                                         Progress& progress) const;
  /// Which of the works memory suffices for.
  void fit(const Runtime& runtime, const OpenModel& model, const EngineWork& work,
           const WeightBytes& bytes);
  void read_weights(const Runtime& runtime, ModelLoader& loader);
  void make_transformer(const Runtime& runtime, const ModelConfig& config);

  ModelPlacement placement_;
  std::unique_ptr<RankGpu> gpu_;  // null: no experts are on GPUs
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<AdapterSet> adapters_;  // that the weights refer to; null: none
  std::unique_ptr<Transformer> transformer_;
  LoadSummary load_;
  bool is_smaller_ = false;
  FittingMemory memory_;
};

/// How texts run: keys and values get the memory that the check before loading has counted for a
/// workload of sequences of `capacity` tokens. `tokenizer` is rank 0's; both must outlive the
/// engine that gets this.
[[nodiscard]] StepOptions text_options(const Runtime& runtime, const ModelConfig& config,
                                       const Workload& work, std::int64_t capacity,
                                       const Tokenizer* tokenizer);

}  // namespace moesaic
