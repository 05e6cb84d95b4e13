#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/sft/disk_demand.h"
#include "launch/sft/sft_data.h"
#include "src/lora/adapter_writer.h"
#include "src/lora/peft_config.h"
#include "src/train/trainer.h"

namespace moesaic {

/// Checksums of all that decides the bytes of a run's result, and of the model and the data alone.
struct RunDigest {
  std::string all{};
  std::string model{};
  std::string data{};
};

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

  /// The newest checkpoint that is whole becomes the state. How many steps it has; -1: there is
  /// none. Tells of newer ones that are damaged. Throws AgreedError if all are, or if it is of
  /// another model, other data or other options. Collective.
  [[nodiscard]] std::int64_t load_newest_checkpoint();
  /// The state after `steps`. Collective.
  void save_checkpoint(std::int64_t steps, std::int64_t also);
  /// The adapter as PEFT reads it. Collective.
  void save_adapter(const std::string& directory) const;
  /// Throws Error{resource} unless OUTDIR has room for what comes after `done` steps. For rank 0.
  void require_room(std::int64_t done) const;
  /// What a run that begins anew writes there. Of rank 0.
  [[nodiscard]] std::int64_t demanded_bytes() const;
  /// The gradients of the last step, before clipping, as safetensors. Collective.
  void write_gradients(const std::string& path) const;

  /// The line of metrics.jsonl that a run begins with.
  [[nodiscard]] std::string start_line(const SftData& data, std::int64_t done) const;
  /// What a run is about to do, for the terminal.
  [[nodiscard]] std::string text(const SftData& data) const;
  [[nodiscard]] std::string checkpoint_path(std::int64_t steps) const {
    return checkpoints_.path(steps);
  }
  /// Those that --keep has made too many. `also` stays. For rank 0.
  void remove_checkpoints(std::int64_t newest, std::int64_t also) const {
    checkpoints_.remove_all_but({runtime_.options().keep, also}, newest);
  }
  /// What to do with the result.
  [[nodiscard]] std::string end_text() const;

 private:
  [[nodiscard]] std::int64_t sum_bytes() const;
  [[nodiscard]] EngineWork engine_work(const OpenModel& model, const SftData& data);
  [[nodiscard]] AdapterDescription description() const;
  [[nodiscard]] SavedAdapter saved_adapter() const {
    return {.description = description(), .adapters = specs_, .sites = sites_};
  }
  [[nodiscard]] bool recomputes() const;
  [[nodiscard]] TrainCheckpoints::State train_state();
  void require_own(const TrainProgress& progress) const;
  /// After `done` steps, with so many checkpoints there.
  [[nodiscard]] DiskDemand disk_demand(std::int64_t done, std::int64_t there) const;
  [[nodiscard]] TrainOptions train_options() const;

  const Runtime& runtime_;
  const ModelConfig& config_;
  const AdapterFiles* lora_;        // that the run goes on from; null: none
  std::vector<AdapterSite> sites_;  // of the model
  std::vector<AdapterSpec> specs_;  // of the model, common ones first
  double dropout_;
  RunDigest digest_;  // of rank 0
  std::unique_ptr<Communicator> replicas_;
  HeldExperts held_;
  AdapterSet adapters_;
  AdapterExchange exchange_;
  TrainCheckpoints checkpoints_;
  Engine engine_;
  std::int64_t total_steps_;
  bool is_converted_;  // the model: no checkpoint
  bool keeps_best_;    // whether a checkpoint may stay for its held-out loss
  SamplePass pass_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace moesaic
