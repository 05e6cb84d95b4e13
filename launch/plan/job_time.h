#pragma once

#include <optional>

#include "launch/plan/job_plan.h"
#include "src/parallel/step_cost.h"

namespace moesaic {

/// Passes of one kind: what one does on every rank.
struct JobPass {
  CostStep step;
  double tokens = 0;   // of all ranks, that a pass gets on with
  double repeats = 1;  // a pass that goes back takes as long as these going forward
};

/// The passes of a job: over its texts, and of generate over new tokens.
struct JobPasses {
  JobPass prompt;
  std::optional<JobPass> generation;
};
[[nodiscard]] JobPasses job_passes(const Options& options, const ModelConfig& config,
                                   const CostRanks& ranks, const Workload& work);

struct JobWork {
  StepEstimate prompt;
  StepEstimate generation;
};
[[nodiscard]] JobWork job_work(const JobPasses& passes, const CostModel& model,
                               const CostRanks& ranks, const ExpertPopularity& popularity);

/// What the passes take on a machine.
struct JobTime {
  double prompt_tokens_per_second = 0;
  double generation_tokens_per_second = 0;  // 0: the job generates nothing
  StepCost prompt;                          // of one pass, forward
  StepCost generation;
};
/// `work`: of the two passes, as estimate_step gives it.
[[nodiscard]] JobTime time_job(const JobPasses& passes, const JobWork& work, const CostRanks& ranks,
                               const MachineRates& machine);

}  // namespace moesaic
