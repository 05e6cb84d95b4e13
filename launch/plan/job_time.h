#pragma once

#include <optional>

#include "launch/plan/job_plan.h"
#include "src/parallel/step_cost.h"

namespace moesaic {

/// Passes of one kind: what one does on every rank.
struct JobPass {
  CostStep step;
  double tokens = 0;  // of all ranks, that a pass gets on with
};

/// The passes of a job: over its texts, and of generate over new tokens; or a step of fine-tuning,
/// whose passes forward are `prompt`.
struct JobPasses {
  JobPass prompt;
  std::optional<JobPass> generation;
  std::optional<CostTraining> training;
};
[[nodiscard]] JobPasses job_passes(const Options& options, const OpenModel& model,
                                   const CostRanks& ranks, Workload work);

struct JobWork {
  StepEstimate prompt;
  StepEstimate generation;
};
[[nodiscard]] JobWork job_work(const JobPasses& passes, const CostModel& model,
                               const CostRanks& ranks, const ExpertPopularity& popularity);

/// What the passes take on a machine.
struct JobTime {
  bool is_training = false;  // `prompt` is of a step
  double prompt_tokens_per_second = 0;
  double generation_tokens_per_second = 0;  // 0: the job generates nothing
  StepCost prompt;                          // of one pass, or of a whole step of fine-tuning
  StepCost generation;
};
/// `work`: of the two passes, as estimate_step gives it.
[[nodiscard]] JobTime time_job(const JobPasses& passes, const JobWork& work, const CostRanks& ranks,
                               const MachineRates& machine);

}  // namespace moesaic
