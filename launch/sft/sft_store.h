#pragma once

#include <cstdint>
#include <string>

#include "launch/sft/disk_demand.h"
#include "launch/sft/run_digest.h"
#include "launch/sft/sft_setup.h"
#include "src/train/train_state.h"

namespace moesaic {

/// What a run of `moesaic sft` keeps of its adapter in OUTDIR: checkpoints, from which it goes on,
/// and the adapter itself.
class SftStore {
 public:
  /// All must outlive this. Collective.
  SftStore(const Runtime& runtime, const OpenModel& model, const SftData& data, SftSetup& setup);

  /// Of the run, on rank 0.
  [[nodiscard]] std::string digest() const { return digest_.text(); }

  /// The newest checkpoint that is whole becomes the state. How many steps it has; -1: there is
  /// none. Tells of newer ones that are damaged. Throws AgreedError if all are, or if it is of
  /// another model, other data or other options. Collective.
  [[nodiscard]] std::int64_t load_newest_checkpoint();
  /// The state after `steps`. `also`: the steps of another one that stays. Collective.
  void save_checkpoint(std::int64_t steps, std::int64_t also);
  [[nodiscard]] std::string checkpoint_path(std::int64_t steps) const {
    return checkpoints_.path(steps);
  }
  /// Those that --keep has made too many. `also` stays. For rank 0.
  void remove_checkpoints(std::int64_t newest, std::int64_t also) const {
    checkpoints_.remove_all_but({runtime_.options().keep, also}, newest);
  }

  /// The adapter as PEFT reads it. Collective.
  void save_adapter(const std::string& directory) const;
  /// The gradients of the last step, before clipping, as safetensors. Collective.
  void write_gradients(const std::string& path) const;

  /// Throws Error{resource} unless OUTDIR has room for what comes after `done` steps. For rank 0.
  void require_room(std::int64_t done) const;
  /// What a run that begins anew writes there. Of rank 0.
  [[nodiscard]] std::int64_t demanded_bytes() const;

 private:
  [[nodiscard]] TrainCheckpoints::State train_state();
  void recall_adapter(const TrainProgress& progress);
  void require_own(const TrainProgress& progress) const;
  /// After `done` steps, with so many checkpoints there.
  [[nodiscard]] DiskDemand disk_demand(std::int64_t done, std::int64_t there) const;

  const Runtime& runtime_;
  SftSetup& setup_;
  RunDigest digest_;  // of rank 0
  TrainCheckpoints checkpoints_;
  bool keeps_best_;  // whether a checkpoint may stay for its held-out loss
};

}  // namespace moesaic
