#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/job/placement_choice.h"
#include "launch/job/session.h"
#include "launch/plan/planned_nodes.h"
#include "launch/sft/disk_demand.h"
#include "src/parallel/step_work.h"

namespace moesaic {

/// Of generate: sizes that are not given go with the context of the model. Where --ctx-size is
/// given and --prompt-tokens is not, texts fill it. A default of --predict that is too large counts
/// as given from now on, since the job has the same one.
void choose_text_sizes(Command& command, const ModelConfig& config);
/// Of a command whose sizes were not chosen: tokens that texts would get where the context has
/// room, if it depends on the context how many; nothing: it does not.
[[nodiscard]] std::optional<std::int64_t> free_predict(const Command& command);

/// Whether a step of sft computes layers again for its backward pass, and why.
struct PlannedRecompute {
  bool is_done = false;
  std::string reason;
};

/// The job of a command line, before it is started: what each of its ranks will hold, counted by
/// the code that will load it. Reads the model's headers alone.
class JobPlan {
 public:
  /// Model and options must outlive this. Throws Error{usage} for ranks that cannot share the
  /// experts, replicas or texts, Error{file} for a model that cannot be read.
  JobPlan(const Options& options, const OpenModel& model, const RuntimeBytes& runtime,
          const ExpertPopularity& popularity);

  [[nodiscard]] const CostRanks& ranks() const noexcept { return ranks_; }
  /// Of sft on nodes of `limit` bytes: --recompute auto does it where a node needs more without.
  [[nodiscard]] PlannedRecompute recompute(std::int64_t limit) const;
  /// Of serve without --ctx-size: the positions of a text that it will have memory for on nodes of
  /// `limit` bytes, no fewer than it starts with; of others and with it, those of the options.
  [[nodiscard]] std::int64_t context(std::int64_t limit) const;
  /// Of sft: what a run that lasts long enough writes, as --save-every and --keep say.
  [[nodiscard]] DiskDemand disk() const;
  /// Of a rank, as `options` say, which may be others than those of the constructor in what
  /// decides the work: --ctx-size, --parallel, --batch-size, --recompute, whose auto is to keep
  /// what layers compute.
  [[nodiscard]] Workload workload(const Options& options) const;
  [[nodiscard]] JobMemory memory(const Options& options) const;

  /// The largest value of `member` with which a node needs no more than `limit`, and a GPU no more
  /// than --gpu-memory, up to `most`; 0: not even 1 will do. --recompute auto does it.
  [[nodiscard]] std::int64_t largest(std::int64_t Options::*member, std::int64_t most,
                                     std::int64_t limit) const;
  /// The same of --ctx-size, which texts fill; 0 too where it has no room for --predict.
  /// `free_predict`: free_predict() of the command.
  [[nodiscard]] std::int64_t largest_context(std::optional<std::int64_t> free_predict,
                                             std::int64_t most, std::int64_t limit) const;
  /// Experts on GPUs as the cost model knows them; nothing: there are none.
  [[nodiscard]] std::optional<CostGpus> cost_gpus() const;
  /// The largest --gpu-experts that fits.
  [[nodiscard]] std::int64_t most_gpu_experts() const;
  /// Nodes with as many ranks each that suffice; 0: there are none.
  [[nodiscard]] int fewest_nodes(std::int64_t limit) const;

 private:
  /// What a rank has of the weights and adapters, by its place among those that share the experts.
  struct Share {
    HeldExperts held;
    std::optional<std::int64_t> first_expert{};
    std::int64_t experts = 0;
    WeightBytes weights;
    ExpertSizes sizes{};                 // with experts on GPUs
    std::optional<ExpertMask> on_gpu{};  // of the held ones, or of all
    std::int64_t adapter_bytes = 0;
    std::int64_t adapter_values = 0;
    std::int64_t common_values = 0;  // of these, those that belong to no expert
  };

  [[nodiscard]] Share share(const CostRanks& ranks, int place) const;
  void put_on_gpu(const CostRanks& ranks, LoadOptions load, Share& share) const;
  [[nodiscard]] bool suffices(const Options& options, std::int64_t limit) const;
  [[nodiscard]] bool gpu_suffices(const GpuMemory& gpu) const;
  [[nodiscard]] bool all_gpus_suffice(const Options& options, const CostRanks& ranks) const;
  [[nodiscard]] int fullest(const CostRanks& ranks) const;  // the rank with most experts
  void count_adapters(Share& share) const;
  [[nodiscard]] Options with_least_memory() const;
  [[nodiscard]] bool has_open_context() const;  // as long as there is memory for
  [[nodiscard]] RankSharing sharing(const CostRanks& ranks, const Workload& work) const;
  [[nodiscard]] Workload workload(const Options& options, const CostRanks& ranks,
                                  const Share& share) const;
  [[nodiscard]] RankMemory rank_memory(const Options& options, const CostRanks& ranks,
                                       const Share& share) const;
  [[nodiscard]] GpuMemory gpu_memory(const Options& options, const CostRanks& ranks,
                                     const Share& share) const;

  const Options& options_;
  const OpenModel& model_;
  RuntimeBytes runtime_;
  ExpertPopularity popularity_;
  CostRanks ranks_;
  PlacementChoice placement_;
  std::optional<GpuWish> gpu_wish_;  // nothing: no experts on GPUs
  std::vector<AdapterSpec> adapters_;
  AdapterDescription saved_as_;    // what sft writes of them
  std::int64_t saving_bytes_ = 0;  // that this takes
  std::vector<Share> shares_;      // [ranks that share the experts]
  mutable std::map<std::pair<int, std::int64_t>, RankSharing> sharings_;  // by sharers and tokens
};

}  // namespace moesaic
