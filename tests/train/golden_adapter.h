#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/lora/adapter_files.h"
#include "src/lora/adapter_writer.h"
#include "src/model/model_adapters.h"
#include "src/parallel/process_grid.h"
#include "src/train/sample_pass.h"

namespace moesaic {

/// A directory of tests/data/adapters: an adapter of a model of tests/data/models, and what PEFT
/// computes of both.
class GoldenAdapter {
 public:
  explicit GoldenAdapter(const std::string& name);

  [[nodiscard]] const std::string& model() const noexcept { return model_; }
  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const ModelNames& names() const noexcept { return names_; }
  [[nodiscard]] const AdapterFiles& files() const noexcept { return *files_; }
  [[nodiscard]] SavedAdapter saved() const {
    return {files_->description(), files_->specs(), sites_};
  }
  [[nodiscard]] const std::vector<TrainSample>& samples() const noexcept { return samples_; }
  /// The first samples, of step 1.
  [[nodiscard]] std::span<const TrainSample> first_step() const;
  /// "logits.0", "losses", ...
  [[nodiscard]] std::vector<float> floats(const std::string& tensor) const;
  /// The gradients of step 1, in the places of the whole model's adapters.
  [[nodiscard]] AdapterSet gradients() const { return adapters_of("grad."); }
  /// The adapters after all steps of the golden training.
  [[nodiscard]] AdapterSet final_adapter() const { return adapters_of("final."); }

 private:
  [[nodiscard]] AdapterSet adapters_of(std::string_view prefix) const;

  std::string model_;
  ModelConfig config_;
  ModelNames names_;
  std::vector<AdapterSite> sites_;
  std::int64_t samples_per_step_ = 0;
  std::optional<AdapterFiles> files_;
  std::optional<SafetensorsFile> golden_;
  std::string directory_;
  std::vector<std::vector<std::int32_t>> ids_;
  std::vector<std::vector<std::int32_t>> labels_;
  std::vector<TrainSample> samples_;
};

/// How a pass is run. Nothing of it may change a bit, of a precision.
struct PassSetup {
  Precision precision = Precision::f32;
  Isa isa = supported_isas().back();
  int ranks = 1;
  int ranks_per_node = 0;  // 0: all share one
  int expert_replicas = 1;
  int threads = 1;
  Recompute recompute = Recompute::never;
  std::size_t samples_at_once = 100;
  double dropout = 0;           // of a trainer
  bool skip_nonfinite = false;  // a trainer leaves steps with what is not finite out
  bool is_used = false;         // another pass has gone through it before
  // But for these:
  std::string model{};  // a directory with the same model in another format; empty: the golden's
  WantedLayouts layouts{};
  Int4Activations int4_activations = Int4Activations::bf16;
  ChosenExperts* choices = nullptr;  // of one rank's one micro-batch: filled, or taken
};

/// One rank with the model and its adapter.
class AdaptedRank {
 public:
  /// Collective over `world`.
  AdaptedRank(const GoldenAdapter& golden, const PassSetup& setup, Communicator& world);

  [[nodiscard]] Transformer& transformer() { return *transformer_; }
  [[nodiscard]] AdapterSet& adapters() { return *adapters_; }

 private:
  ThreadPool pool_;
  ProcessGrid grid_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<AdapterSet> adapters_;
  std::unique_ptr<Transformer> transformer_;
};

/// What all ranks found of some samples.
struct PassResults {
  std::vector<double> losses;                             // of the samples
  std::map<std::string, std::vector<std::int64_t>> sums;  // by module: A, then B
  RouterStatistics routers;                               // of all layers
};

/// A forward and backward pass of the samples, sample s on rank s % ranks; forward passes of all
/// micro-batches before the first backward pass.
[[nodiscard]] PassResults run_pass(const GoldenAdapter& golden,
                                   std::span<const TrainSample> samples, const PassSetup& setup);

}  // namespace moesaic
