#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/small_file.h"
#include "base/topology.h"
#include "launch/input/token_prompts.h"
#include "launch/job/gpu_choice.h"
#include "launch/job/largest_value.h"
#include "launch/job/memory_check.h"
#include "launch/job/verbs.h"
#include "launch/plan/cost_model.h"
#include "launch/plan/job_command.h"
#include "launch/plan/plan_report.h"
#include "launch/plan/planned_model.h"
#include "launch/plan/planned_routing.h"
#include "launch/plan/planned_verb.h"
#include "launch/plan/shape_plan.h"
#include "launch/sft/sft_adapters.h"
#include "src/model/model_adapters.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

/// What MPI takes besides, as seen with Open MPI 4.1 and PMIx 4.2: 1.5 MiB of a rank; on a node
/// 6 MiB, pages of their libraries and of the program's own start under them.
constexpr std::int64_t kMpiRankBytes = std::int64_t{3} << 19;
constexpr std::int64_t kMpiNodeBytes = std::int64_t{6} << 20;
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

/// What rank 0 has besides to read and write texts.
std::int64_t tokenizer_bytes(const OpenModel& model) {
  if (!has_tokenizer(model.files)) return 0;
  const std::int64_t before = runtime_bytes().rank;
  const auto tokenizer = Tokenizer::from_directory(model.files.directory());
  return std::max<std::int64_t>(0, runtime_bytes().rank - before);
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

/// What is planned with.
struct PlanSetting {
  Options options;  // with threads
  std::optional<MachineRates> machine{};
  RuntimeBytes runtime{};
  MemoryLimit limit{};
};

/// What a node may use: as --memory says, or what the job would be told.
MemoryLimit planned_limit(const Command& command) {
  if (command.options.memory_limit) return node_memory(command.options, "--memory");
  return node_memory(command_of_job(command).options, "--memory-limit of the job");
}

PlanSetting read_setting(const Command& command) {
  const Options& options = command.options;
  PlanSetting setting{.options = options};
  if (options.machine) setting.machine = read_machine_rates(*options.machine);
  if (options.threads == 0) setting.options.threads = share_of_cores(options, setting.machine);
  setting.runtime = plan_runtime(setting.machine);
  setting.limit = planned_limit(command);
  return setting;
}

/// `options`: as they were given.
std::string threads_source(const Options& options, const PlanSetting& setting) {
  if (options.threads != 0) return "--threads";
  return fmt::format("a rank's share of the cores of {}",
                     setting.machine ? setting.machine->path : "this machine");
}

std::string runtime_source(const PlanSetting& setting) {
  return setting.machine ? setting.machine->path
                         : "this program here, and for MPI 1.5 MiB of a rank and 6 MiB of a node";
}

/// Why no time can be told; empty: it can.
std::string missing_rates(const PlanSetting& setting) {
  const Options& options = setting.options;
  const bool has_gpus = options.has_gpu_experts();
  if (!setting.machine) {
    return fmt::format(
        ": --machine FILE says what a node does{}, and moesaic doctor --measure FILE writes it "
        "there",
        has_gpus ? " with its GPUs" : "");
  }
  if (!has_gpus) return "";
  if (!setting.machine->gpu) {
    return fmt::format(
        " for experts on GPUs: {} was measured without a GPU; moesaic doctor --measure FILE "
        "measures those that there are",
        setting.machine->path);
  }
  if (options.gpu_kernel == GpuKernel::cutlass) {
    return " for --gpu-kernel cutlass: nothing measures what its products reach";
  }
  if (options.transport == Transport::nccl && options.plan_ranks > 1) {
    return " for --transport nccl: nothing tells how long rows take from GPU to GPU";
  }
  return "";
}

/// The parts of it that traffic and time are about.
void add_time(PlanReport& report, const PlanSetting& setting, const JobPasses& passes,
              const CostModel& cost_model, const ExpertPopularity& popularity) {
  report.routing_source = popularity.source();
  const JobWork work = job_work(passes, cost_model, report.ranks, popularity);
  report.traffic = work.prompt.traffic;
  report.no_time = missing_rates(setting);
  if (!report.no_time.empty()) return;
  try {
    report.time = time_job(passes, work, report.ranks, *setting.machine);
  } catch (const Error& error) {  // of something that was not measured: all else is known
    if (error.kind() != ErrorKind::usage) throw;
    report.no_time = fmt::format(": {}", error.what());
  }
}

/// Whether rows between nodes may travel as the codes that experts take: training sends none, and
/// adapters of gate and up want the rows themselves (MoeFeedForward).
bool may_send_codes(const PlanReport& report, const Options& options, const OpenModel& model) {
  const auto wants_rows = [](const AdapterSpec& adapter) {
    return adapter.site.kind == AdapterKind::experts && adapter.site.part != MlpPart::down;
  };
  return report.ranks.nodes() > 1 && options.plan_job != PlanJob::sft &&
         !(model.adapter && std::ranges::any_of(model.adapter->specs(), wants_rows));
}

void add_model_time(PlanReport& report, const PlanSetting& setting, const OpenModel& model,
                    const JobPlan& job, const ExpertPopularity& popularity) {
  const Options& options = setting.options;
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
                                          .int8_rows = may_send_codes(report, options, model)},
                                         options.int4_activations);
  cost_model.wire.results_come_later = options.plan_job != PlanJob::sft;
  cost_model.placement = &placement;
  cost_model.gpus = job.cost_gpus();
  const Workload work = job.workload(options);
  add_time(report, setting, job_passes(options, model, report.ranks, work), cost_model, popularity);
}

/// What would fit, but for the context.
void add_largest(PlanReport& report, const JobPlan& job, const Options& options) {
  const std::int64_t limit = report.limit.available_bytes;
  if (options.plan_job == PlanJob::generate || options.plan_job == PlanJob::serve) {
    report.largest_parallel = job.largest(&Options::parallel, kMost, limit);
  }
  report.largest_batch_size = job.largest(&Options::batch_size, kMost, limit);
  report.fewest_nodes = job.fewest_nodes(limit);
  if (options.gpu_bytes && options.has_gpu_experts()) {
    report.gpu_limit = options.gpu_bytes->bytes;
    report.most_gpu_experts = job.most_gpu_experts();
  }
}

/// What the job would choose for itself. As the job, refuses options that do not suit the model, or
/// are not what the adapter of --lora has.
void choose_as_job(Command& command, const OpenModel& model, Options& options) {
  warn_of_context(Log(command.options.log_level, 0, 1), command.options, model.config);
  choose_text_sizes(command, model.config);
  options.predict = command.options.predict;
  options.prompt_tokens = command.options.prompt_tokens;
  if (options.plan_job == PlanJob::sft) {
    const std::vector<AdapterSpec> adapters =
        choose_adapters(command, model, adapter_sites(model.files.names(model.config)));
    options.lora_dropout =
        choose_dropout(command, model.adapter ? &*model.adapter : nullptr, adapters);
  }
  check_moe_options({.defer = options.defer, .wire = options.wire, .combine = options.combine},
                    model.config);
}

PlanReport plan_model(Command command, PlanSetting setting) {
  const std::int64_t before = runtime_bytes().rank;
  const PlannedModel planned = open_planned_model(setting.options);
  const OpenModel& model = planned.model;
  const std::optional<std::int64_t> predict = free_predict(command);
  choose_as_job(command, model, setting.options);
  const Options options = setting.options;
  setting.runtime.rank += std::max<std::int64_t>(0, runtime_bytes().rank - before);  // of headers
  setting.runtime.node += tokenizer_bytes(model);  // of the one node that has rank 0
  if (options.asks_model()) {  // all else is looked at before the model is asked
    (void)JobPlan(options, model, setting.runtime, ExpertPopularity::even());
  }
  const ExpertPopularity popularity = planned_routing(options, planned);
  const JobPlan job(options, model, setting.runtime, popularity);
  PlanReport report;
  report.limit = setting.limit;
  if (options.plan_job == PlanJob::sft) {
    report.recompute = job.recompute(report.limit.available_bytes);
    if (report.recompute->is_done) setting.options.recompute = RecomputeChoice::always;
    report.disk = job.disk();
  }
  if (options.plan_job == PlanJob::serve) {
    setting.options.ctx_size = job.context(report.limit.available_bytes);
  }
  report.memory = job.memory(setting.options);
  report.ranks = job.ranks();
  report.command = job_command(command, job.ranks());
  report.weights_source =
      fmt::format("counted by the code that loads them, from {}", planned.weights_source);
  report.runtime_source = runtime_source(setting);
  report.threads_source = threads_source(command.options, setting);
  if (!has_tokenizer(model.files)) {
    report.runtime_source += "; without a tokenizer, which is not here";
  }
  report.largest_ctx_size = job.largest_context(predict, model.config.max_position_embeddings,
                                                setting.limit.available_bytes);
  add_largest(report, job, options);
  const Workload work = job.workload(setting.options);
  report.sequences = work.sequences;
  report.sequence_tokens = work.capacity;
  add_model_time(report, setting, model, job, popularity);
  return report;
}

PlanReport plan_shape(const Command& command, const PlanSetting& setting) {
  require(!setting.options.asks_model(), ErrorKind::usage,
          "--routing model: --shape {} is a layer without a model that could choose",
          *setting.options.shape);
  const ShapePlan plan(setting.options, setting.runtime);
  const LayerShape& shape = plan.shape();
  PlanReport report;
  report.is_layer = true;
  report.memory = plan.memory(setting.options.batch_size);
  report.limit = setting.limit;
  report.ranks = plan.ranks();
  report.command = job_command(command, plan.ranks());
  report.weights_source =
      fmt::format("one layer: {} experts, {} of them a token, of {} x {} (hidden x intermediate)",
                  shape.experts, shape.topk, shape.hidden, shape.intermediate);
  report.runtime_source = runtime_source(setting);
  report.threads_source = threads_source(command.options, setting);
  const std::int64_t limit = setting.limit.available_bytes;
  report.largest_batch_size = largest_value(
      kMost, [&](std::int64_t tokens) { return plan.memory(tokens).node.total() <= limit; });
  report.fewest_nodes = plan.fewest_nodes(limit);
  add_time(report, setting, plan.passes(), plan.cost_model(), plan.popularity());
  return report;
}

PlanReport make_report(const Command& command) {
  const Options& options = command.options;
  if (!options.shape) {
    require(options.shape_experts == 0, ErrorKind::usage,
            "--experts {} is for --shape: a model has the experts that it has",
            options.shape_experts);
    require(!options.model.empty(), ErrorKind::usage,
            "no model: --model DIR says which, or --shape NAME one layer of experts");
    refuse_options_of_others(command);
    return plan_model(command, read_setting(command));
  }
  require(options.model.empty(), ErrorKind::usage,
          "--shape {} and --model {}: a plan has one of them", *options.shape, options.model);
  refuse_options_of_others(command);
  return plan_shape(command, read_setting(command));
}

}  // namespace

void run_plan(const Command& command) {
  const PlanReport report = make_report(command);
  require_gpu_uses(command);
  fmt::print("{}", command.options.json ? plan_json(report) + "\n" : plan_text(report));
  require_memory(report.memory.node, report.limit, planned_verb(command.options));
  if (!report.gpu_limit) return;
  require_gpu_memory(report.memory.gpu,
                     {.gpu = "a GPU",
                      .bytes = *report.gpu_limit,
                      .source = "--gpu-memory",
                      .most_experts = report.most_gpu_experts},
                     command.options.gpu_experts);
}

}  // namespace moesaic
