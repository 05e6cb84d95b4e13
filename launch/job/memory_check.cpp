#include "launch/job/memory_check.h"
#include "launch/job/gpu_graphs.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/rounding.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"

namespace moesaic {
namespace {

/// The smallest limit of the node's ranks: each may be in a cgroup of its own. What system and
/// cgroup leave is beside what the ranks have already, which `plan` counts too.
MemoryLimit node_limit(const Runtime& runtime, const MemoryPlan& plan) {
  MemoryLimit limit;
  agree(runtime.world(), [&] { limit = node_memory(runtime.options()); });
  const std::vector<std::int64_t> limits =
      gather_values(runtime.grid().node(), limit.available_bytes);
  limit.available_bytes = *std::min_element(limits.begin(), limits.end());
  if (!runtime.options().memory_limit) {
    limit.available_bytes += plan.items[MemoryItem::runtime];
  }
  return limit;
}

/// What is going to be loaded, and what the program takes before.
struct LoadedModel {
  const ModelConfig& config;
  const WeightBytes& weights;
  RuntimeBytes running = runtime_bytes();
};

Verb verb_of(const Runtime& runtime) {
  return *runtime.command().verb;
}

/// What the ranks of this node need together if this one needs `rank`, and the program `running`.
/// Collective over the node.
MemoryPlan plan_node(const Runtime& runtime, RankMemory rank, const RuntimeBytes& running,
                     const WeightBytes::ByFormat& experts) {
  rank.own[MemoryItem::runtime] = running.rank;
  rank.shared[MemoryItem::runtime] = running.node;
  MemoryPlan plan{.items = rank.own, .expert_formats = experts};
  Communicator& node = runtime.grid().node();
  node.sum(std::span<std::int64_t>(plan.items.bytes));
  node.max(std::span<std::int64_t>(rank.shared.bytes));
  node.sum(std::span<std::int64_t>(plan.expert_formats));
  plan.items += rank.shared;
  plan.num_ranks = node.size();
  plan.keeps_layers = rank.keeps_layers;
  return plan;
}

/// The same of a model. Collective over the world.
MemoryPlan plan_node(const Runtime& runtime, const LoadedModel& model, const Workload& work) {
  const ModelConfig& config = model.config;
  const RankMemory rank =
      plan_rank({.config = config,
                 .precision = runtime.precision(),
                 .wire = runtime.options().wire,
                 .deferred = runtime.options().defer,
                 .graph_bytes = pinned_graph_bytes(runtime.options(), config),
                 .tries_halves = runtime.options().half_batches == HalfBatches::automatic &&
                                 runtime.num_nodes() > 1},
                model.weights, work, share_ranks(runtime, config, work));
  return plan_node(runtime, rank, model.running, model.weights.experts);
}

}  // namespace

CostRanks job_ranks(const Runtime& runtime) {
  return {.ranks = runtime.world().size(),
          .ranks_per_node = runtime.grid().node().size(),
          .threads = runtime.self().threads,
          .expert_replicas = runtime.grid().expert_replicas(),
          .by_messages = runtime.options().transport == Transport::mpi};
}

RankSharing share_ranks(const Runtime& runtime, const ModelConfig& config, const Workload& work) {
  std::int64_t tokens = work.batch_tokens;
  runtime.grid().experts().sum({&tokens, 1});
  const CostRanks ranks = job_ranks(runtime);
  RankSharing sharing{.sharers = ranks.sharers(),
                      .nodes = ranks.sharer_nodes(),
                      .all_tokens = tokens,
                      .threads = ranks.threads};
  expect_rows({config.num_experts, config.experts_per_token, config.num_moe_layers()},
              ExpertPopularity::zipf(1), sharing);
  return sharing;
}

MemoryLimit node_memory(const Options& options, std::string_view option) {
  if (!options.memory_limit) return memory_limit();
  return {options.memory_limit->bytes, std::string(option)};
}

std::int64_t spare_memory(const Runtime& runtime) {
  const std::int64_t ranks = runtime.grid().node().size();
  const std::int64_t left = memory_limit().available_bytes / ranks;
  const std::optional<ByteCount>& limit = runtime.options().memory_limit;
  if (!limit) return left;
  return std::clamp<std::int64_t>(limit->bytes / ranks - resident_bytes().peak, 0, left);
}

void require_spare_memory(const Runtime& runtime, std::int64_t bytes, std::string_view use) {
  // Of a rank, that others of its node may have more already, and this one by the next time.
  constexpr std::int64_t kMargin = std::int64_t{2} << 20;
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  if (spare_memory(runtime) >= bytes) return;
  const std::int64_t ranks = runtime.grid().node().size();
  const std::string need =
      fmt::format("not enough memory: {} need {}{}", use, format_bytes(bytes),
                  ranks == 1 ? "" : fmt::format(" of each of the {} ranks on this node", ranks));
  const MemoryLimit left = memory_limit();
  require(left.available_bytes / ranks >= bytes, ErrorKind::resource,
          "{}, but {} are available ({})", need, format_bytes(left.available_bytes), left.source);
  const std::int64_t has = resident_bytes().peak;
  fail(ErrorKind::resource,
       "--memory-limit {}: {} beside the {} that the program has; --memory-limit {}M would do",
       runtime.options().memory_limit->text, need, format_bytes(has),
       divide_up(ranks * (has + bytes + kMargin), kMebibyte));
}

FittingMemory check_memory(const Runtime& runtime, const ModelConfig& config,
                           const WeightBytes& weights, const Workload& work) {
  const LoadedModel model{.config = config, .weights = weights};
  MemoryPlan plan = plan_node(runtime, model, work);
  const MemoryLimit limit = node_limit(runtime, plan);
  Workload fitting = work;
  if (work.least_capacity > 0) {
    const std::int64_t others = plan.total() - plan.items[MemoryItem::cache];
    Workload of_node = work;
    runtime.grid().node().sum({&of_node.sequences, 1});
    const std::int64_t fits =
        positions_in(config, runtime.precision(), of_node, limit.available_bytes - others);
    const std::vector<std::int64_t> all =
        gather_values(runtime.world(), std::max(fits, work.least_capacity));
    fitting.capacity = std::min(work.capacity, *std::ranges::min_element(all));
    plan = plan_node(runtime, model, fitting);
  }
  agree(runtime.world(), [&] { require_memory(plan, limit, verb_of(runtime)); });
  return {.capacity = fitting.capacity, .node_bytes = plan.total()};
}

std::int64_t check_rank_memory(const Runtime& runtime, RankMemory rank,
                               const WeightBytes::ByFormat& experts) {
  const MemoryPlan plan = plan_node(runtime, rank, runtime_bytes(), experts);
  const MemoryLimit limit = node_limit(runtime, plan);
  agree(runtime.world(), [&] { require_memory(plan, limit, verb_of(runtime)); });
  return plan.total();
}

bool memory_fits(const Runtime& runtime, const ModelConfig& config, const WeightBytes& weights,
                 const Workload& work) {
  const MemoryPlan plan = plan_node(runtime, {.config = config, .weights = weights}, work);
  std::int64_t is_short = plan.total() > node_limit(runtime, plan).available_bytes ? 1 : 0;
  runtime.world().max({&is_short, 1});
  return is_short == 0;
}

std::int64_t node_peak_bytes(Communicator& node) {
  const ResidentBytes own = resident_bytes();
  std::array<std::int64_t, 1> sum = {own.peak - own.file - own.shared};
  std::array<std::int64_t, 2> most = {own.file, own.shared};
  node.sum(std::span<std::int64_t>(sum));
  node.max(std::span<std::int64_t>(most));
  return sum[0] + most[0] + most[1];
}

std::string bytes_text(const WeightBytes::ByFormat& bytes) {
  std::string text;
  for (const Format format : formats_in(bytes)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ",
                        format_bytes(bytes[static_cast<std::size_t>(format)]), format_name(format));
  }
  return text.empty() ? "none" : text;
}

std::string weights_text(const WeightBytes::ByFormat& experts,
                         const WeightBytes::ByFormat& others) {
  return fmt::format("experts {}, others {}", bytes_text(experts), bytes_text(others));
}

}  // namespace moesaic
