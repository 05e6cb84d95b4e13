#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/sft/sft_data.h"
#include "src/lora/adapter_writer.h"
#include "src/lora/peft_config.h"
#include "src/train/trainer.h"

namespace moesaic {

/// All that a run of `moesaic sft` consists of on a rank: the model, its adapters and what trains
/// them.
class SftSetup {
 public:
  /// Chooses and makes the adapters, checks the memory, loads the model. Collective. All must
  /// outlive this.
  SftSetup(const Runtime& runtime, const OpenModel& model, const SftData& data);

  [[nodiscard]] Trainer& trainer() noexcept { return *trainer_; }
  /// Of the whole run.
  [[nodiscard]] std::int64_t total_steps() const noexcept { return total_steps_; }
  [[nodiscard]] Engine& engine() noexcept { return engine_; }
  [[nodiscard]] const Engine& engine() const noexcept { return engine_; }
  /// For steps on another transformer with the same weights; what trains them starts anew, with the
  /// same adapters.
  [[nodiscard]] SamplePass pass_on(Transformer& transformer) const;
  [[nodiscard]] std::unique_ptr<Trainer> trainer_on(SamplePass& pass);
  /// Of this rank, so far.
  [[nodiscard]] PhaseTimes phase_times() { return engine_.transformer().times(); }

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  /// Whether the model has been converted, so that there is no checkpoint.
  [[nodiscard]] bool is_converted() const noexcept { return is_converted_; }
  /// Whether layers run again before their backward pass.
  [[nodiscard]] bool recomputes() const;
  /// All adapters of the model, common ones first.
  [[nodiscard]] std::span<const AdapterSpec> specs() const noexcept { return specs_; }
  /// The share of their inputs that a step leaves out.
  [[nodiscard]] double dropout() const noexcept { return dropout_; }
  /// Those of this rank.
  [[nodiscard]] AdapterSet& adapters() noexcept { return adapters_; }
  [[nodiscard]] const AdapterExchange& exchange() const noexcept { return exchange_; }
  [[nodiscard]] AdapterDescription description() const;
  /// Refers to this.
  [[nodiscard]] SavedAdapter saved_adapter() const {
    return {.description = description(), .adapters = specs_, .sites = sites_};
  }

 private:
  [[nodiscard]] std::int64_t sum_bytes() const;
  [[nodiscard]] EngineWork engine_work(const OpenModel& model, const SftData& data);
  [[nodiscard]] TrainOptions train_options() const;

  const Runtime& runtime_;
  const ModelConfig& config_;
  const AdapterFiles* lora_;        // that the run goes on from; null: none
  std::vector<AdapterSite> sites_;  // of the model
  std::vector<AdapterSpec> specs_;
  double dropout_;
  std::unique_ptr<Communicator> replicas_;
  HeldExperts held_;
  AdapterSet adapters_;
  AdapterExchange exchange_;
  Engine engine_;
  std::int64_t total_steps_;
  bool is_converted_;
  SamplePass pass_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace moesaic
