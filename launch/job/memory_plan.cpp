#include "launch/job/memory_plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/memory.h"
#include "src/model/kv_pool.h"
#include "src/moe/device_road.h"
#include "src/moe/wire_rows.h"
#include "src/parallel/expert_loads.h"

namespace moesaic {
namespace {

/// Rows of the experts' loads, and of what else a forward pass has.
struct PassRows {
  double tokens = 0;    // of this rank
  double outputs = 0;   // of its experts, one a choice
  double received = 0;  // token rows from other ranks
  double results = 0;   // from other ranks
};

PassRows pass_rows(const ModelConfig& config, const Workload& work, const RankSharing& sharing) {
  PassRows rows{.tokens = static_cast<double>(work.batch_tokens)};
  const auto topk = static_cast<double>(config.experts_per_token);
  const auto sharers = static_cast<double>(sharing.sharers);
  const double elsewhere = (sharers - 1) / sharers;
  rows.outputs = static_cast<double>(sharing.all_tokens) * topk / sharers * sharing.max_over_mean;
  const auto others = static_cast<double>(sharing.all_tokens - work.batch_tokens);
  rows.received = std::min(others, rows.outputs * elsewhere);
  rows.results = rows.tokens * topk * elsewhere;
  return rows;
}

/// Buffers that all layers share: the residual stream, a part's input and its result.
constexpr std::int64_t kCommonRows = 3;

std::int64_t activation_bytes(const ModelConfig& config, const Workload& work,
                              const PassRows& rows) {
  std::int64_t token = 0;  // of the largest layer: one works at a time
  std::int64_t output = 0;
  for (const LayerConfig& layer : config.layers) {
    token = std::max(token, layer.mixer->row_bytes() + layer.feed_forward->row_bytes());
    output = std::max(output, layer.feed_forward->expert_row_bytes());
  }
  return work.batch_tokens * (4 * kCommonRows * config.hidden_size + token) +
         std::llround(rows.outputs * static_cast<double>(output)) +
         work.logits_rows * config.vocab_size * 4 + work.kept_bytes;
}

/// Rows and results of choices that are pending besides those of the layer at work.
std::int64_t deferred_bytes(const MemoryModel& model, const PassRows& rows) {
  if (model.deferred == 0) return 0;
  const ModelConfig& config = model.config;
  return std::llround(rows.outputs * static_cast<double>(model.deferred * 10 * config.hidden_size) /
                      static_cast<double>(config.experts_per_token));
}

/// Receive buffers of an exchange there and one back; rows between nodes are packed besides.
std::int64_t exchange_bytes(const MemoryModel& model, const PassRows& rows,
                            const RankSharing& sharing) {
  const ModelConfig& config = model.config;
  if (sharing.sharers == 1 || config.num_experts == 0) return 0;
  const WireRows wire(config.hidden_size * element_bytes(model.precision),
                      config.experts_per_token);
  const auto row = static_cast<double>(wire.row_bytes());
  const auto result = static_cast<double>(4 * config.hidden_size);
  const double received = rows.received * row + rows.results * result;
  const double off_node = static_cast<double>(sharing.nodes - 1) / sharing.nodes;
  const double sent_rows = rows.tokens * static_cast<double>(std::min<std::int64_t>(
                                             config.experts_per_token, sharing.sharers - 1));
  return std::llround(received + off_node * (sent_rows * row + rows.outputs * result));
}

/// The part of the embedding that is in memory once so many tokens have been looked up: the system
/// maps the pages around each.
std::int64_t embedding_bytes(std::int64_t bytes, std::int64_t tokens) {
  constexpr double kMapped = 64 << 10;
  const double windows = std::max(1.0, static_cast<double>(bytes) / kMapped);
  const double met = windows * (1 - std::exp(-static_cast<double>(tokens) / windows));
  return std::min<std::int64_t>(bytes, std::llround(met * kMapped));
}

/// What threads that pack have in their hands, and pages of files not yet released.
std::int64_t load_bytes(const RankSharing& sharing) {
  constexpr std::int64_t kThreadBytes = std::int64_t{2} << 20;
  constexpr std::int64_t kMappedBytes = std::int64_t{8} << 20;
  return kMappedBytes + sharing.threads * kThreadBytes;
}

/// Formats of more than four bits a weight.
bool could_be_smaller(const MemoryPlan& plan) {
  constexpr std::array kSmall = {Format::int4, Format::int4_group, Format::nvfp4, Format::mxfp4,
                                 Format::f32};  // f32 is not for --expert-format to change
  const std::vector<Format> formats = formats_in(plan.expert_formats);
  return std::ranges::any_of(
      formats, [&](Format format) { return std::ranges::find(kSmall, format) == kSmall.end(); });
}

std::string help_text(const MemoryPlan& plan) {
  const auto is_large = [&](MemoryItem item) { return plan.items[item] > plan.total() / 10; };
  std::string help;
  if (is_large(MemoryItem::expert) && could_be_smaller(plan)) {
    help += "experts of 4 bits (--expert-format), ";
  }
  if (is_large(MemoryItem::cache)) {
    help += "shorter sequences (--predict, --ctx-size), fewer at a time (--parallel), ";
  }
  if (plan.items[MemoryItem::optimizer] > 0 && is_large(MemoryItem::activation)) {
    help += "--recompute always, ";
  }
  if (is_large(MemoryItem::activation) || is_large(MemoryItem::exchange)) {
    help += "a smaller --batch-size, ";
  }
  if (is_large(MemoryItem::adapter) || is_large(MemoryItem::optimizer)) {
    help += "fewer --lora-targets, a smaller --lora-rank, ";
  }
  if (plan.num_ranks > 1 && is_large(MemoryItem::runtime)) help += "fewer ranks a node, ";
  return help + "more nodes, or a larger limit";
}

constexpr std::array<std::string_view, kNumMemoryItems> kItemTexts = {
    "experts",  "other weights", "key-value cache", "activations", "exchange",
    "adapters", "optimizer",     "the program",     "loading"};

}  // namespace

MemoryItem MemoryItems::largest() const noexcept {
  return static_cast<MemoryItem>(std::ranges::max_element(bytes) - bytes.begin());
}

MemoryItems& MemoryItems::operator+=(const MemoryItems& other) noexcept {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += other.bytes[i];
  return *this;
}

double expected_max_over_mean(const ModelConfig& config, int sharers, std::int64_t all_tokens) {
  if (sharers == 1 || config.num_experts == 0) return 1;
  constexpr std::int64_t kLayers = 4;
  const ExpertPopularity popularity = ExpertPopularity::zipf(1);
  double most = 1;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const LayerLoad load = draw_load({.experts = config.num_experts,
                                      .topk = config.experts_per_token,
                                      .tokens = std::max<std::int64_t>(all_tokens, 1)},
                                     {.ranks = sharers, .ranks_per_node = sharers},
                                     popularity.rates(layer, config.num_experts), layer);
    most = std::max(most, load.max_over_mean);
  }
  return most;
}

RuntimeBytes runtime_bytes() {
  const ResidentBytes now = resident_bytes();
  return {.rank = now.anonymous, .node = now.file + now.shared};
}

RoadRows road_rows(const ModelConfig& config, const Workload& work, const RankSharing& sharing) {
  const PassRows rows = pass_rows(config, work, sharing);
  return {.ranks = sharing.sharers,
          .tokens = work.batch_tokens,
          .topk = config.experts_per_token,
          .outputs = std::llround(rows.outputs),
          .received = std::llround(rows.received)};
}

RankMemory plan_rank(const MemoryModel& model, const WeightBytes& weights, const Workload& work,
                     const RankSharing& sharing) {
  const PassRows rows = pass_rows(model.config, work, sharing);
  RankMemory memory;
  MemoryItems& own = memory.own;
  own[MemoryItem::expert] = weights.rank_bytes;
  own[MemoryItem::cache] =
      work.sequences * KvPool::sequence_bytes(model.config, model.precision, work.capacity);
  own[MemoryItem::activation] =
      activation_bytes(model.config, work, rows) + deferred_bytes(model, rows);
  if (weights.device_bytes > 0) {
    own[MemoryItem::activation] +=
        pinned_pass_bytes(std::llround(rows.outputs), model.config.hidden_size);
  }
  own[MemoryItem::exchange] = exchange_bytes(model, rows, sharing);
  own[MemoryItem::adapter] = work.adapter_bytes;
  own[MemoryItem::optimizer] = work.optimizer_bytes;
  const std::int64_t later = own.total() - own[MemoryItem::expert];
  own[MemoryItem::load] = std::max<std::int64_t>(0, load_bytes(sharing) - later);
  const std::int64_t looked_up = std::max(work.texts_tokens, work.batch_tokens);
  memory.shared[MemoryItem::dense] =
      weights.node_bytes + embedding_bytes(weights.embedding_bytes, looked_up);
  return memory;
}

void require_memory(const MemoryPlan& plan, std::int64_t available_bytes, std::string_view source) {
  if (plan.total() <= available_bytes) return;
  fail(ErrorKind::resource,
       "not enough memory: {} {} need {} ({}), most of it for {}, but {} are available ({}); what "
       "would help: {}",
       plan.num_ranks, plan.num_ranks == 1 ? "rank would" : "ranks of this node would",
       format_bytes(plan.total()), items_text(plan),
       kItemTexts[static_cast<std::size_t>(plan.items.largest())], format_bytes(available_bytes),
       source, help_text(plan));
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

std::string items_text(const MemoryPlan& plan) {
  std::vector<std::string_view> formats;
  for (const Format format : formats_in(plan.expert_formats)) {
    formats.push_back(format_name(format));
  }
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kNumMemoryItems; ++i) {
    const auto item = static_cast<MemoryItem>(i);
    if (plan.items[item] == 0 && item != MemoryItem::expert) continue;
    const bool is_formatted = item == MemoryItem::expert && !formats.empty();
    parts.push_back(
        fmt::format("{} {}{}", kItemTexts[i], format_bytes(plan.items[item]),
                    is_formatted ? fmt::format(" in {}", fmt::join(formats, " and ")) : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<Format> formats_in(const WeightBytes::ByFormat& bytes) {
  std::vector<Format> formats;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) formats.push_back(static_cast<Format>(i));
  }
  std::ranges::stable_sort(formats, std::greater(),
                           [&](Format format) { return bytes[static_cast<std::size_t>(format)]; });
  return formats;
}

}  // namespace moesaic
