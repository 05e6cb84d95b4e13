#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/small_file.h"
#include "base/topology.h"
#include "launch/job/memory_check.h"
#include "launch/plan/cost_model.h"
#include "launch/plan/plan_report.h"
#include "launch/plan/planned_model.h"
#include "launch/verbs/verbs.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

/// What MPI takes besides, as seen with Open MPI 4.1: 2 to 4 MiB of a rank, 2 to 5 MiB of a node.
constexpr std::int64_t kMpiRankBytes = std::int64_t{3} << 20;
constexpr std::int64_t kMpiNodeBytes = std::int64_t{2} << 20;
/// --parallel and --batch-size end there.
constexpr std::int64_t kMost = 1'000'000;

/// A rank's memory without a model: as it was measured, or as this process has it, which is the
/// same program.
RuntimeBytes plan_runtime(const std::optional<MachineRates>& machine) {
  if (machine) return {.rank = machine->rank_bytes, .node = machine->node_bytes};
  RuntimeBytes runtime = runtime_bytes();
  runtime.rank += kMpiRankBytes;
  runtime.node += kMpiNodeBytes;
  return runtime;
}

bool has_tokenizer(const OpenModel& model) {
  return file_exists(model.files.path_of("tokenizer.json"));
}

/// What rank 0 has besides to read and write texts.
std::int64_t tokenizer_bytes(const OpenModel& model) {
  if (!has_tokenizer(model)) return 0;
  const std::int64_t before = runtime_bytes().rank;
  const auto tokenizer = Tokenizer::from_directory(model.files.directory());
  return std::max<std::int64_t>(0, runtime_bytes().rank - before);
}

std::int64_t largest_parallel(const JobPlan& job, const Options& options, std::int64_t limit) {
  if (options.plan_job != PlanJob::generate) return 0;
  return job.largest(&Options::parallel, kMost, limit);
}

/// Threads that --threads 0 means: a rank's share of the cores of a node, which are those of this
/// machine where no other is told of.
std::int64_t share_of_cores(const Options& options, const std::optional<MachineRates>& machine) {
  const int cores = machine ? machine->cores : read_topology().usable_cores;
  const std::int64_t on_node = options.ranks_per_node == 0
                                   ? options.plan_ranks
                                   : std::min(options.ranks_per_node, options.plan_ranks);
  return std::max<std::int64_t>(1, cores / on_node);
}

/// The part of it that time is about.
void add_time(PlanReport& report, const Options& options, const OpenModel& model,
              const std::optional<MachineRates>& machine) {
  const auto popularity = ExpertPopularity::from_text(options.plan_routing);
  report.routing_source = popularity.source();
  const JobPasses passes = job_passes(options, model, report.ranks, report.work);
  const bool can_gain = report.ranks.nodes() > 1;
  const ModelPlacement placement =
      PlacementChoice(options.placement).place(model.config, report.ranks.sharers());
  CostModel cost_model = make_cost_model(model,
                                         {.precision = options.precision,
                                          .layouts = model.layouts,
                                          .stored = {.map = options.mmap},
                                          .progress = {}},
                                         {.defer = options.defer,
                                          .wire = options.wire,
                                          .combine = options.combine,
                                          .int8_rows = can_gain});
  cost_model.placement = &placement;
  const JobWork work = job_work(passes, cost_model, report.ranks, popularity);
  report.traffic = work.prompt.traffic;
  const bool is_known = machine && options.gpu_experts == "none";
  if (is_known) report.time = time_job(passes, work, report.ranks, *machine);
}

PlanReport make_report(const Command& command) {
  Options options = command.options;
  std::optional<MachineRates> machine;
  if (options.machine) machine = read_machine_rates(*options.machine);
  if (options.threads == 0) options.threads = share_of_cores(options, machine);
  RuntimeBytes runtime = plan_runtime(machine);
  const PlannedModel planned = open_planned_model(options);
  const OpenModel& model = planned.model;
  runtime.node += tokenizer_bytes(model);  // of the one node that has rank 0
  const JobPlan job(options, model, runtime);
  PlanReport report;
  report.memory = job.memory(options);
  report.limit = node_memory(options);
  report.ranks = job.ranks();
  report.work = job.workload(options);
  report.command = job_command(command, job.ranks());
  report.weights_source = planned.weights_source;
  report.runtime_source =
      machine ? machine->path
              : "this program here, and for MPI 3 MiB of a rank and 2 MiB of a node";
  if (!has_tokenizer(model)) report.runtime_source += "; without a tokenizer, which is not here";
  const std::int64_t limit = report.limit.available_bytes;
  report.largest_ctx_size =
      job.largest(&Options::ctx_size, model.config.max_position_embeddings, limit);
  report.largest_parallel = largest_parallel(job, options, limit);
  report.largest_batch_size = job.largest(&Options::batch_size, kMost, limit);
  report.fewest_nodes = job.fewest_nodes(limit);
  if (options.gpu_bytes && options.gpu_experts != "none") {
    report.gpu_limit = options.gpu_bytes->bytes;
    report.most_gpu_experts = job.most_gpu_experts();
  }
  add_time(report, options, model, machine);
  return report;
}

}  // namespace

void run_plan(const Command& command) {
  const PlanReport report = make_report(command);
  fmt::print("{}", command.options.json ? plan_json(report) + "\n" : plan_text(report));
  require_memory(report.memory.node, report.limit.available_bytes, report.limit.source);
  if (!report.gpu_limit) return;
  require_gpu_memory(report.memory.gpu,
                     {.gpu = "a GPU",
                      .bytes = *report.gpu_limit,
                      .source = "--gpu-memory",
                      .most_experts = report.most_gpu_experts},
                     command.options.gpu_experts);
}

}  // namespace moesaic
