#include "launch/job/memory_check.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "base/memory.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "src/model/kv_pool.h"

namespace moesaic {
namespace {

/// Rows and results of the choices that are pending besides those of the layer at work, with twice
/// the average load, as FeedForwardKind::row_bytes().
std::int64_t deferred_bytes(const Options& options, const ModelConfig& config,
                            const Workload& work) {
  return work.batch_tokens * 2 * options.defer * 10 * config.hidden_size;
}

/// What the ranks of this node need together.
MemoryPlan plan_node(const Runtime& runtime, const ModelConfig& config, const WeightBytes& weights,
                     const Workload& work) {
  const std::int64_t cache = KvPool::sequence_bytes(config, runtime.precision(), work.capacity);
  std::array<std::int64_t, 5> sums = {
      weights.rank_bytes, work.sequences * cache,
      activation_bytes(config, work) + deferred_bytes(runtime.options(), config, work),
      work.adapter_bytes, work.kept_bytes};
  WeightBytes::ByFormat formats = weights.experts;
  Communicator& node = runtime.grid().node();
  node.sum(std::span<std::int64_t>(sums));
  node.sum(std::span<std::int64_t>(formats));
  return {.expert_bytes = sums[0],
          .expert_formats = formats,
          .node_bytes = weights.node_bytes,
          .cache_bytes = sums[1],
          .activation_bytes = sums[2],
          .adapter_bytes = sums[3],
          .kept_bytes = sums[4],
          .num_ranks = node.size()};
}

/// The formats that there are, most bytes first.
std::vector<Format> formats_in(const WeightBytes::ByFormat& bytes) {
  std::vector<Format> formats;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) formats.push_back(static_cast<Format>(i));
  }
  std::ranges::stable_sort(formats, std::greater(),
                           [&](Format format) { return bytes[static_cast<std::size_t>(format)]; });
  return formats;
}

/// Formats of more than four bits a weight.
bool could_be_smaller(const MemoryPlan& plan) {
  constexpr std::array kSmall = {Format::int4, Format::int4_group, Format::nvfp4, Format::mxfp4,
                                 Format::f32};  // f32 is not for --expert-format to change
  const std::vector<Format> formats = formats_in(plan.expert_formats);
  return plan.expert_bytes > plan.total() / 10 && std::ranges::any_of(formats, [&](Format format) {
           return std::ranges::find(kSmall, format) == kSmall.end();
         });
}

std::string training_text(const MemoryPlan& plan) {
  std::string text;
  if (plan.adapter_bytes > 0) {
    text += fmt::format(", adapters {}", format_bytes(plan.adapter_bytes));
  }
  if (plan.kept_bytes > 0) {
    text += fmt::format(", kept for the backward pass {}", format_bytes(plan.kept_bytes));
  }
  return text;
}

}  // namespace

MemoryLimit node_memory(const Options& options) {
  if (!options.memory_limit) return memory_limit();
  return {options.memory_limit->bytes, "--memory-limit"};
}

std::int64_t spare_memory(const Runtime& runtime) {
  const std::int64_t ranks = runtime.grid().node().size();
  const std::int64_t left = memory_limit().available_bytes / ranks;
  const std::optional<ByteCount>& limit = runtime.options().memory_limit;
  if (!limit) return left;
  return std::clamp<std::int64_t>(limit->bytes / ranks - peak_resident_bytes(), 0, left);
}

std::int64_t activation_bytes(const ModelConfig& config, const Workload& work) {
  std::int64_t layer_bytes = 0;  // of the largest layer: one works at a time
  for (const LayerConfig& layer : config.layers) {
    layer_bytes = std::max(layer_bytes, layer.mixer->row_bytes() + layer.feed_forward->row_bytes());
  }
  return work.batch_tokens * (4 * 6 * config.hidden_size + layer_bytes) +
         work.logits_rows * config.vocab_size * 4;
}

void require_memory(const MemoryPlan& plan, std::int64_t available_bytes, std::string_view source) {
  if (plan.total() <= available_bytes) return;
  std::string help;
  if (could_be_smaller(plan)) help += "experts of 4 bits (--expert-format), ";
  if (plan.cache_bytes > plan.total() / 10) {
    help += "shorter sequences (--predict, --ctx-size), fewer at a time (--parallel), ";
  }
  if (plan.kept_bytes > plan.total() / 10) help += "--recompute always, ";
  if (plan.activation_bytes + plan.kept_bytes > plan.total() / 10) {
    help += "a smaller --batch-size, ";
  }
  if (plan.adapter_bytes > plan.total() / 10)
    help += "fewer --lora-targets, a smaller --lora-rank, ";
  help += "more nodes, or a larger limit";
  std::vector<std::string_view> names;
  for (const Format format : formats_in(plan.expert_formats)) names.push_back(format_name(format));
  fail(ErrorKind::resource,
       "not enough memory: {} {} need {} (experts {}{}, other weights {}, key-value cache {}, "
       "activations {}{}), but {} are available ({}); what would help: {}",
       plan.num_ranks, plan.num_ranks == 1 ? "rank would" : "ranks of this node would",
       format_bytes(plan.total()), format_bytes(plan.expert_bytes),
       names.empty() ? "" : fmt::format(" in {}", fmt::join(names, " and ")),
       format_bytes(plan.node_bytes), format_bytes(plan.cache_bytes),
       format_bytes(plan.activation_bytes), training_text(plan), format_bytes(available_bytes),
       source, help);
}

std::int64_t positions_in(const ModelConfig& config, Precision precision, const Workload& work,
                          std::int64_t cache_bytes) {
  std::int64_t fits = 0;
  std::int64_t most = work.capacity;
  while (fits < most) {
    const std::int64_t middle = fits + (most - fits + 1) / 2;
    const bool is_enough =
        work.sequences * KvPool::sequence_bytes(config, precision, middle) <= cache_bytes;
    (is_enough ? fits : most) = is_enough ? middle : middle - 1;
  }
  return fits;
}

namespace {

/// The smallest limit of the node's ranks: each may be in a cgroup of its own.
MemoryLimit node_limit(const Runtime& runtime) {
  MemoryLimit limit;
  agree(runtime.world(), [&] { limit = node_memory(runtime.options()); });
  const std::vector<std::int64_t> limits =
      gather_values(runtime.grid().node(), limit.available_bytes);
  limit.available_bytes = *std::min_element(limits.begin(), limits.end());
  return limit;
}

}  // namespace

std::int64_t check_memory(const Runtime& runtime, const ModelConfig& config,
                          const WeightBytes& weights, const Workload& work) {
  const MemoryLimit limit = node_limit(runtime);
  MemoryPlan plan = plan_node(runtime, config, weights, work);
  Workload fitting = work;
  if (work.least_capacity > 0) {
    const std::int64_t others = plan.total() - plan.cache_bytes;
    const std::int64_t fits =
        positions_in(config, runtime.precision(), work, limit.available_bytes - others);
    const std::vector<std::int64_t> all =
        gather_values(runtime.world(), std::max(fits, work.least_capacity));
    fitting.capacity = std::min(work.capacity, *std::ranges::min_element(all));
    plan = plan_node(runtime, config, weights, fitting);
  }
  agree(runtime.world(), [&] { require_memory(plan, limit.available_bytes, limit.source); });
  return fitting.capacity;
}

bool memory_fits(const Runtime& runtime, const ModelConfig& config, const WeightBytes& weights,
                 const Workload& work) {
  const MemoryLimit limit = node_limit(runtime);
  std::int64_t is_short =
      plan_node(runtime, config, weights, work).total() > limit.available_bytes ? 1 : 0;
  runtime.world().max({&is_short, 1});
  return is_short == 0;
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
