#include "launch/plan/job_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "launch/input/token_prompts.h"
#include "launch/job/adapter_layout.h"
#include "launch/job/gpu_choice.h"
#include "launch/job/gpu_graphs.h"
#include "launch/job/gpu_road.h"
#include "launch/job/largest_value.h"
#include "launch/job/workloads.h"
#include "launch/plan/training_cost.h"
#include "src/lora/adapter_writer.h"
#include "src/model/model_adapters.h"
#include "src/train/gradient_reduction.h"
#include "src/train/train_state.h"

namespace moesaic {
namespace {

/// Those that the job will have: of --lora, or of sft the ones that it trains.
std::vector<AdapterSpec> adapters_of(const Options& options, const OpenModel& model) {
  if (options.plan_job == PlanJob::sft) return trained_adapters(options, model);
  return model.adapter ? model.adapter->specs() : std::vector<AdapterSpec>();
}

/// What --gpu-experts says; sft takes none.
GpuWish planned_gpus(const Options& options, const ModelConfig& config) {
  require(options.plan_job != PlanJob::sft, ErrorKind::usage,
          "--gpu-experts is for generate, serve and score, not for --job sft");
  require(!options.fits_gpu_experts() || options.gpu_bytes, ErrorKind::usage,
          "--gpu-experts auto: --gpu-memory says how much memory a GPU has for them");
  return read_gpu_wish(options, config);
}

/// Of Options::prompt_tokens: as many as the context has room for before --predict.
constexpr std::int64_t kFillsContext = 0;

/// Tokens of a text of the job, and how many of them it gives.
TextSizes text_sizes(const Options& options, const ModelConfig& config, std::int64_t ranks) {
  const std::int64_t limit = context_limit(options, config);
  const bool is_whole = options.prompt_tokens == kFillsContext || options.predict < 0;
  const std::int64_t text = is_whole ? limit : options.prompt_tokens + options.predict;
  const std::int64_t prompt = options.predict < 0 ? options.prompt_tokens : text - options.predict;
  return {.texts = ranks * options.parallel,
          .longest_prompt = std::clamp<std::int64_t>(prompt, 1, text),
          .longest_text = text};
}

/// Tokens that a text gets where nobody said how many, nor how long its prompt is.
std::int64_t half_of_context(std::int64_t limit, std::int64_t wanted) {
  return std::min(limit / 2, wanted);
}

/// Tokens of a prompt of which nobody said how long it is.
std::int64_t free_prompt(const Options& options, std::int64_t limit) {
  if (options.ctx_size > 0 && options.predict >= 0) return kFillsContext;
  const std::int64_t left = limit - std::max<std::int64_t>(options.predict, 1);
  return std::clamp<std::int64_t>(left, 1, options.prompt_tokens);
}

/// Throws Error{usage} for texts that the context has no room for, naming the sizes that were
/// given.
void require_room(const Options& options, const ModelConfig& config, bool is_prompt_told,
                  bool is_room_told) {
  const ContextLimit limit = context_of(options, config);
  const std::string prompt = is_prompt_told
                                 ? fmt::format("--prompt-tokens {}", options.prompt_tokens)
                                 : std::string("a prompt");
  const std::string told =
      is_room_told ? fmt::format("{} and --predict {}", prompt, options.predict) : prompt;
  const std::int64_t least =
      std::max<std::int64_t>(options.prompt_tokens, 1) + std::max<std::int64_t>(options.predict, 0);
  require(least <= limit.tokens, ErrorKind::usage, "{}: more than the context of {} tokens ({})",
          told, limit.tokens, limit.source);
}

}  // namespace

std::optional<std::int64_t> free_predict(const Command& command) {
  const bool is_free = command.options.plan_job == PlanJob::generate &&
                       source_of(command, "prompt-tokens") == OptionSource::preset &&
                       source_of(command, "predict") == OptionSource::preset;
  return is_free ? std::optional(command.options.predict) : std::nullopt;
}

void choose_text_sizes(Command& command, const ModelConfig& config) {
  Options& options = command.options;
  if (options.plan_job != PlanJob::generate) return;
  const bool is_prompt_told = source_of(command, "prompt-tokens") != OptionSource::preset;
  const std::int64_t limit = context_limit(options, config);
  const bool is_room_told = source_of(command, "predict") != OptionSource::preset;
  if (!is_room_told) {
    // A prompt that fills the context is followed by nothing; one that is too long is refused.
    const std::int64_t fitting =
        is_prompt_told ? std::clamp<std::int64_t>(limit - options.prompt_tokens, 0, options.predict)
                       : half_of_context(limit, options.predict);
    if (fitting < options.predict) set_source(command, "predict", OptionSource::command_line);
    options.predict = fitting;
  }
  if (!is_prompt_told) options.prompt_tokens = free_prompt(options, limit);
  require_room(options, config, is_prompt_told, is_room_told);
}

JobPlan::JobPlan(const Options& options, const OpenModel& model, const RuntimeBytes& runtime,
                 const ExpertPopularity& popularity)
    : options_(options),
      model_(model),
      runtime_(runtime),
      popularity_(popularity),
      ranks_(planned_ranks(options, model.config.num_experts)),
      placement_(options.placement),
      adapters_(adapters_of(options, model)) {
  require_graph_use(options);
  require_gpu_options(options);
  if (options.plan_job == PlanJob::sft) {
    if (model.adapter) saved_as_ = model.adapter->description();
    saved_as_.layout =
        choose_adapter_layout(options, model.config, model.adapter ? &*model.adapter : nullptr);
    saving_bytes_ = saving_bytes({.description = saved_as_, .adapters = adapters_, .sites = {}});
  }
  if (options.has_gpu_experts()) gpu_wish_ = planned_gpus(options, model.config);
  for (int place = 0; place < ranks_.sharers(); ++place) shares_.push_back(share(ranks_, place));
}

JobPlan::Share JobPlan::share(const CostRanks& ranks, int place) const {
  const ModelPlacement placement = placement_.place(model_.config, ranks.sharers());
  const LoadOptions load{.precision = options_.precision,
                         .layouts = model_.layouts,
                         .stored = {.map = options_.mmap},
                         .placement = &placement,
                         .expert_rank = place,
                         .progress = {}};
  const ModelLoader loader(model_.files, model_.config, load);
  Share result{.held = HeldExperts(placement, place),
               .experts = placement.most_experts(place),
               .weights = loader.bytes()};
  if (placement_.is_contiguous()) {
    result.first_expert = placement.of_layer(0).experts_start_idx(place);
  }
  count_adapters(result);
  if (gpu_wish_) put_on_gpu(ranks, load, result);
  return result;
}

/// Counts the weights again, with those of the experts that are to be on the rank's GPU there.
void JobPlan::put_on_gpu(const CostRanks& ranks, LoadOptions load, Share& share) const {
  share.sizes = expert_sizes(model_.config, ModelLoader(model_.files, model_.config, load),
                             share.held, *gpu_wish_);
  const std::int64_t rows = gpu_memory(options_, ranks, share).rows;
  const std::int64_t room = options_.gpu_bytes ? options_.gpu_bytes->bytes - rows : 0;
  const ExpertMask chosen = choose_experts(*gpu_wish_, share.sizes, room);
  load.on_device = &chosen;
  share.weights = ModelLoader(model_.files, model_.config, load).bytes();
  share.on_gpu = chosen;
}

std::optional<CostGpus> JobPlan::cost_gpus() const {
  if (!gpu_wish_) return std::nullopt;
  CostGpus gpus{.kernels = options_.gpu_kernel == GpuKernel::cutlass ? DeviceKernels::cutlass
                                                                     : DeviceKernels::mma,
                .activations = options_.nvfp4_activations,
                .has_graphs = options_.gpu_graph == GpuGraph::on,
                .may_sum = hindering_option(options_).empty()};
  for (const std::int64_t count : experts_of_layers(model_.config)) {
    const auto layer = std::ssize(gpus.experts);
    std::vector<bool>& there = gpus.experts.emplace_back(static_cast<std::size_t>(count));
    for (std::int64_t expert = 0; expert < count; ++expert) {
      there[static_cast<std::size_t>(expert)] =
          std::ranges::any_of(shares_, [&](const Share& share) {
            return share.held.contains(layer, expert) && share.on_gpu->contains(layer, expert);
          });
    }
  }
  return gpus;
}

int JobPlan::fullest(const CostRanks& ranks) const {
  const ModelPlacement placement = placement_.place(model_.config, ranks.sharers());
  int rank = 0;
  for (int other = 1; other < ranks.sharers(); ++other) {
    if (placement.most_experts(other) > placement.most_experts(rank)) rank = other;
  }
  return rank;
}

void JobPlan::count_adapters(Share& share) const {
  const std::vector<AdapterSpec> own = specs_of_rank(adapters_, share.held);
  share.adapter_bytes = AdapterSet::bytes(own, weight_format(options_.precision));
  for (const AdapterSpec& spec : own) {
    share.adapter_values += spec.num_values();
    if (spec.site.expert < 0) share.common_values += spec.num_values();
  }
}

DiskDemand JobPlan::disk() const {
  const std::vector<AdapterSite> sites = adapter_sites(model_.files.names(model_.config));
  const SavedAdapter saved{.description = saved_as_, .adapters = adapters_, .sites = sites};
  return {.total_steps = options_.save_every * (options_.keep + 1) + 1,
          .save_every = options_.save_every,
          .keep = options_.keep,
          .checkpoint_bytes = TrainCheckpoints("", saved).bytes(),
          .adapter_bytes = adapter_file_bytes(saved)};
}

Workload JobPlan::workload(const Options& options, const CostRanks& ranks,
                           const Share& share) const {
  const ModelConfig& config = model_.config;
  Workload work;
  if (options.plan_job == PlanJob::generate) {
    work = generate_workload(options, ranks.ranks, text_sizes(options, config, ranks.ranks));
  } else if (options.plan_job == PlanJob::serve) {
    work = serve_workload(options, config);
  } else if (options.plan_job == PlanJob::score) {
    const std::int64_t window = context_limit(options, config);
    const std::int64_t windows = ranks.ranks * (2 + 2 * options.batch_size / window);
    work = score_workload(options, ranks.ranks,
                          {.windows = windows, .tokens = windows * window, .longest = window})
               .work;
  } else {
    const std::int64_t sample = context_limit(options, config);
    return sft_workload(options, config,
                        {.longest = sample,
                         .tokens = sample * options.global_batch_size,
                         .adapter_bytes = share.adapter_bytes,
                         .adapter_values = share.adapter_values,
                         .sum_bytes = GradientReduction::most_bytes(
                             ranks.ranks, ranks.expert_replicas,
                             {share.common_values, share.adapter_values - share.common_values}),
                         .saving_bytes = saving_bytes_,
                         .adapters = adapters_,
                         .expert_ranks = ranks.sharers(),
                         .dropout = options.lora_dropout,
                         .threads = ranks.threads},
                        options.recompute == RecomputeChoice::always);
  }
  work.adapter_bytes = share.adapter_bytes;
  return work;
}

Workload JobPlan::workload(const Options& options) const {
  return workload(options, ranks_, shares_.front());
}

RankSharing JobPlan::sharing(const CostRanks& ranks, const Workload& work) const {
  RankSharing result{.sharers = ranks.sharers(),
                     .nodes = ranks.sharer_nodes(),
                     .all_tokens = work.batch_tokens * ranks.sharers(),
                     .threads = ranks.threads};
  const auto [known, is_new] = sharings_.try_emplace({result.sharers, result.all_tokens}, result);
  if (is_new) {
    const ModelConfig& config = model_.config;
    expect_rows({config.num_experts, config.experts_per_token, config.num_moe_layers()},
                popularity_, known->second);
  }
  result.max_over_mean = known->second.max_over_mean;
  result.expert_rows = known->second.expert_rows;
  return result;
}

RankMemory JobPlan::rank_memory(const Options& options, const CostRanks& ranks,
                                const Share& share) const {
  const Workload work = workload(options, ranks, share);
  RankMemory memory = plan_rank(
      {.config = model_.config,
       .precision = options.precision,
       .wire = options.wire,
       .deferred = options.defer,
       .graph_bytes = pinned_graph_bytes(options, model_.config),
       .tries_halves = options.half_batches == HalfBatches::automatic && ranks.nodes() > 1},
      share.weights, work, sharing(ranks, work));
  memory.own[MemoryItem::runtime] = runtime_.rank;
  memory.shared[MemoryItem::runtime] = runtime_.node;
  return memory;
}

GpuMemory JobPlan::gpu_memory(const Options& options, const CostRanks& ranks,
                              const Share& share) const {
  if (!gpu_wish_) return {};
  const Workload work = workload(options, ranks, share);
  return {.weights = share.weights.device_bytes,
          .rows = gpu_pass_bytes(model_.config, work, sharing(ranks, work), options)};
}

bool JobPlan::gpu_suffices(const GpuMemory& gpu) const {
  return !options_.gpu_bytes || gpu.weights == 0 || gpu.total() <= options_.gpu_bytes->bytes;
}

std::int64_t JobPlan::most_gpu_experts() const {
  std::int64_t most = model_.config.num_experts;
  for (const Share& share : shares_) {
    const std::int64_t rows = gpu_memory(options_, ranks_, share).rows;
    most = std::min(most, largest_spread(share.sizes, options_.gpu_bytes->bytes - rows));
  }
  return most;
}

JobMemory JobPlan::memory(const Options& options) const {
  std::vector<PlaceMemory> places;
  for (const Share& share : shares_) {
    places.push_back({.memory = rank_memory(options, ranks_, share),
                      .first_expert = share.first_expert,
                      .experts = share.experts,
                      .expert_formats = share.weights.experts,
                      .gpu = gpu_memory(options, ranks_, share)});
  }
  return job_memory(ranks_, places);
}

PlannedRecompute JobPlan::recompute(std::int64_t limit) const {
  if (options_.recompute == RecomputeChoice::always) return {true, "--recompute always"};
  if (options_.recompute == RecomputeChoice::never) return {false, "--recompute never"};
  const std::int64_t kept = memory(options_).node.total();
  return {kept > limit,
          fmt::format("a node needs {} to keep what layers compute (--recompute auto)",
                      format_bytes(kept))};
}

/// Of --recompute auto, and of a server's contexts, what they fall back to: whether anything fits
/// is whether that does.
Options JobPlan::with_least_memory() const {
  Options options = options_;
  if (options.recompute == RecomputeChoice::automatic) options.recompute = RecomputeChoice::always;
  if (has_open_context()) {
    options.ctx_size = std::min(context_limit(options, model_.config), kLeastContext);
  }
  return options;
}

bool JobPlan::has_open_context() const {
  return options_.plan_job == PlanJob::serve && options_.ctx_size == 0;
}

std::int64_t JobPlan::context(std::int64_t limit) const {
  const std::int64_t most = context_limit(options_, model_.config);
  if (!has_open_context()) return most;
  const std::int64_t least = std::min(most, kLeastContext);
  return std::max(largest_context(std::nullopt, most, limit), least);
}

std::int64_t JobPlan::largest(std::int64_t Options::*member, std::int64_t most,
                              std::int64_t limit) const {
  Options options = with_least_memory();
  return largest_value(most, [&](std::int64_t value) {
    options.*member = value;
    return suffices(options, limit);
  });
}

std::int64_t JobPlan::largest_context(std::optional<std::int64_t> free_predict, std::int64_t most,
                                      std::int64_t limit) const {
  Options options = with_least_memory();
  if (options.predict >= 0) options.prompt_tokens = kFillsContext;
  const std::int64_t largest = largest_value(most, [&](std::int64_t value) {
    options.ctx_size = value;
    if (free_predict) options.predict = half_of_context(value, *free_predict);
    return suffices(options, limit);
  });
  const bool has_room =
      free_predict || options.plan_job != PlanJob::generate || largest > options.predict;
  return has_room ? largest : 0;
}

bool JobPlan::suffices(const Options& options, std::int64_t limit) const {
  const JobMemory needed = memory(options);
  return needed.node.total() <= limit && gpu_suffices(needed.gpu);
}

int JobPlan::fewest_nodes(std::int64_t limit) const {
  const Options options = with_least_memory();
  return moesaic::fewest_nodes(ranks_, model_.config.num_experts, [&](const CostRanks& ranks) {
    // All have as much as this one at most of the experts, and as much of the rest.
    const Share most = share(ranks, fullest(ranks));
    const RankMemory rank = rank_memory(options, ranks, most);
    return ranks.on_node() * rank.own.total() + rank.shared.total() <= limit &&
           all_gpus_suffice(options, ranks);
  });
}

/// The rank with most experts need not be the one with most of them on its GPU.
bool JobPlan::all_gpus_suffice(const Options& options, const CostRanks& ranks) const {
  if (!gpu_wish_ || !options_.gpu_bytes) return true;
  for (int place = 0; place < ranks.sharers(); ++place) {
    if (!gpu_suffices(gpu_memory(options, ranks, share(ranks, place)))) return false;
  }
  return true;
}

}  // namespace moesaic
