#include "launch/job/memory_plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/memory.h"
#include "base/rounding.h"
#include "kernels/gemm_plan.h"
#include "kernels/kernel_table.h"
#include "launch/job/largest_value.h"
#include "launch/options/option_table.h"
#include "src/model/half_batches.h"
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

PassRows pass_rows(const ExpertTokens& tokens, const RankSharing& sharing) {
  PassRows rows{.tokens = static_cast<double>(tokens.tokens)};
  const auto topk = static_cast<double>(tokens.topk);
  const auto sharers = static_cast<double>(sharing.sharers);
  const double elsewhere = (sharers - 1) / sharers;
  rows.outputs = static_cast<double>(sharing.all_tokens) * topk / sharers * sharing.max_over_mean;
  const auto others = static_cast<double>(sharing.all_tokens - tokens.tokens);
  rows.received = std::min(others, rows.outputs * elsewhere);
  rows.results = rows.tokens * topk * elsewhere;
  return rows;
}

/// Buffers that all layers share: the residual stream, a part's input and its result.
constexpr std::int64_t kCommonRows = 3;

/// Of what experts compute for their rows, in the largest layer.
std::int64_t output_bytes(const ModelConfig& config, const PassRows& rows) {
  std::int64_t row = 0;
  for (const LayerConfig& layer : config.layers) {
    row = std::max(row, layer.feed_forward->expert_row_bytes());
  }
  return std::llround(rows.outputs * static_cast<double>(row));
}

std::int64_t activation_bytes(const ModelConfig& config, const Workload& work, const PassRows& rows,
                              int threads) {
  const PassSize pass{work.batch_tokens, work.capacity, threads};
  std::int64_t token = 0;                           // of the largest layer: one works at a time
  std::map<const MixerKind*, std::int64_t> mixers;  // each has its own
  for (const LayerConfig& layer : config.layers) {
    token = std::max(token, layer.mixer->row_bytes() + layer.feed_forward->row_bytes());
    mixers[layer.mixer.get()] = layer.mixer->pass_bytes(pass);
  }
  std::int64_t mixing = 0;
  for (const auto& [kind, bytes] : mixers) mixing += bytes;
  return mixing + work.batch_tokens * (4 * kCommonRows * config.hidden_size + token) +
         output_bytes(config, rows) + work.logits_rows * config.vocab_size * 4 + work.kept_bytes;
}

/// Rows and results of choices that are pending besides those of the layer at work.
std::int64_t deferred_bytes(const MemoryModel& model, const PassRows& rows) {
  if (model.deferred == 0) return 0;
  const ModelConfig& config = model.config;
  return std::llround(rows.outputs * static_cast<double>(model.deferred * 10 * config.hidden_size) /
                      static_cast<double>(config.experts_per_token));
}

ExpertTokens expert_tokens(const MemoryModel& model, const Workload& work) {
  return {.hidden = model.config.hidden_size,
          .topk = model.config.experts_per_token,
          .tokens = work.batch_tokens,
          .precision = model.precision,
          .wire = model.wire};
}

/// Of a number of a row before products with weights in these formats, by this machine's best
/// kernels: from 1 of int8 to 4 of f32.
std::int64_t packed_bytes(const WeightBytes::ByFormat& formats, std::int64_t depth) {
  std::int64_t most = 1;
  for (const Format format : formats_in(formats)) {
    const GemmKernel& kernel = find_gemm_kernel(supported_isas().back(), format);
    const auto row = static_cast<std::int64_t>(kernel.packed_row_bytes(depth));
    most = std::max(most, (row + depth / 2) / depth);
  }
  return most;
}

/// Packed rows of products, which follow one another in the same memory, and what threads have at
/// work.
std::int64_t product_bytes(const ModelConfig& config, const WeightBytes& weights,
                           const Workload& work, const RankSharing& sharing) {
  constexpr std::int64_t kThreadBytes = std::int64_t{1} << 19;  // results of a job and scratch
  const std::int64_t hidden = config.hidden_size;
  std::int64_t most = 0;
  for (const LayerConfig& layer : config.layers) {
    const FeedForwardSizes sizes = layer.feed_forward->sizes();
    const MlpScratch common{.hidden = hidden,
                            .width = sizes.common_width,
                            .rows = work.batch_tokens,
                            .threads = sharing.threads,
                            .packed_bytes = packed_bytes(weights.others, hidden)};
    const MlpScratch expert{.hidden = hidden,
                            .width = sizes.expert_width,
                            .rows = sizes.experts > 0 ? sharing.expert_rows : 0,
                            .mlps = divide_up(config.num_experts, sharing.sharers),
                            .threads = sharing.threads,
                            .packed_bytes = packed_bytes(weights.experts, hidden)};
    most = std::max({most, mlp_scratch_bytes(common), mlp_scratch_bytes(expert)});
  }
  return most + sharing.threads * kThreadBytes;
}

/// The part of the embedding that is in memory once so many tokens have been looked up: the system
/// maps the pages around each.
std::int64_t embedding_bytes(std::int64_t bytes, std::int64_t tokens) {
  constexpr double kMapped = 64 << 10;
  const double windows = std::max(1.0, static_cast<double>(bytes) / kMapped);
  const double met = windows * (1 - std::exp(-static_cast<double>(tokens) / windows));
  return std::min<std::int64_t>(bytes, std::llround(met * kMapped));
}

/// What threads that pack have in their hands; the rest of the files they have released.
std::int64_t load_bytes(const WeightBytes& weights, const RankSharing& sharing) {
  return sharing.threads * weights.job_bytes;
}

/// Formats of more than four bits a weight.
bool could_be_smaller(const MemoryPlan& plan) {
  constexpr std::array kSmall = {Format::int4, Format::int4_group, Format::nvfp4, Format::mxfp4,
                                 Format::f32};  // f32 is not for --expert-format to change
  const std::vector<Format> formats = formats_in(plan.expert_formats);
  return std::ranges::any_of(
      formats, [&](Format format) { return std::ranges::find(kSmall, format) == kSmall.end(); });
}

/// What would help, of which only what options of `verb` can do is said.
class Help {
 public:
  explicit Help(Verb verb) : verb_(verb) {}

  /// "words (--a, --b), ".
  void add(std::string_view words, std::initializer_list<std::string_view> names) {
    std::vector<std::string> options;
    for (const std::string_view name : names) {
      if (has(name)) options.push_back(fmt::format("--{}", name));
    }
    if (!options.empty()) text_ += fmt::format("{} ({}), ", words, fmt::join(options, ", "));
  }
  /// `words` have the option in them.
  void add_if(std::string_view option, std::string_view words) {
    if (has(option)) text_ += fmt::format("{}, ", words);
  }
  void add(std::string_view words) { text_ += words; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  [[nodiscard]] bool has(std::string_view option) const {
    return takes(verb_, *find_option(option, verb_));
  }
  Verb verb_;
  std::string text_;
};

std::string help_text(const MemoryPlan& plan, Verb verb) {
  const auto is_large = [&](MemoryItem item) { return plan.items[item] > plan.total() / 10; };
  Help help(verb);
  if (is_large(MemoryItem::expert) && could_be_smaller(plan)) {
    help.add("experts of 4 bits", {"expert-format"});
  }
  if (is_large(MemoryItem::cache) || (verb == Verb::sft && is_large(MemoryItem::activation))) {
    help.add("shorter sequences", {"predict", "ctx-size", "n-prompt", "n-gen", "prompt-gen"});
    help.add("fewer at a time", {"parallel", "sequences"});
  }
  if (plan.keeps_layers && is_large(MemoryItem::activation)) {
    help.add_if("recompute", "--recompute always");
  }
  if (is_large(MemoryItem::activation) || is_large(MemoryItem::exchange)) {
    help.add_if("batch-size", "a smaller --batch-size");
  }
  if (is_large(MemoryItem::adapter) || is_large(MemoryItem::optimizer)) {
    help.add_if("lora-targets", "fewer --lora-targets");
    help.add_if("lora-rank", "a smaller --lora-rank");
  }
  if (plan.num_ranks > 1 && is_large(MemoryItem::runtime)) help.add("fewer ranks a node, ");
  return help.text() + "more nodes, or a larger limit";
}

constexpr std::array<std::string_view, kNumMemoryItems> kItemTexts = {
    "experts",  "other weights", "embedding", "key-value cache", "activations",
    "exchange", "adapters",      "optimizer", "the program",     "loading"};

}  // namespace

MemoryItem MemoryItems::largest() const noexcept {
  return static_cast<MemoryItem>(std::ranges::max_element(bytes) - bytes.begin());
}

MemoryItems& MemoryItems::operator+=(const MemoryItems& other) noexcept {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += other.bytes[i];
  return *this;
}

void expect_rows(const ExpertLayers& layers, const ExpertPopularity& popularity,
                 RankSharing& sharing) {
  if (layers.experts == 0) return;
  constexpr std::int64_t kMostDrawn = 4;
  const std::int64_t drawn =
      popularity.has_choices() ? layers.layers : std::min(layers.layers, kMostDrawn);
  for (std::int64_t layer = 0; layer < drawn; ++layer) {
    const LayerLoad load =
        draw_load({.experts = layers.experts,
                   .topk = layers.topk,
                   .tokens = std::max<std::int64_t>(sharing.all_tokens, 1)},
                  {.ranks = sharing.sharers, .ranks_per_node = sharing.sharers}, popularity, layer);
    sharing.max_over_mean = std::max(sharing.max_over_mean, load.max_over_mean);
    if (load.busiest.empty()) continue;
    sharing.expert_rows = std::max(sharing.expert_rows, load.busiest.rbegin()->first);
  }
}

/// Before the last slab's outer product three wait in the ring with packed rows and inner
/// activations, and two with these packed; before them stay others until threads have enough jobs
/// ready, and beside them there is room for any one.
std::int64_t mlp_scratch_bytes(const MlpScratch& mlp) {
  constexpr std::int64_t kInner = 3;
  constexpr std::int64_t kOuter = 2;
  constexpr std::int64_t kSlab = JobGraph::kSlabRows;
  const std::int64_t rows = std::min(mlp.rows, kSlab);
  const std::int64_t inner = rows * (mlp.packed_bytes * mlp.hidden + 2 * mlp.width);
  const std::int64_t outer = rows * mlp.packed_bytes * mlp.width;
  const double inner_jobs = GemmPlan::least_jobs(rows, mlp.width);
  const double outer_jobs = GemmPlan::least_jobs(rows, mlp.hidden);
  const double missing = static_cast<double>(JobGraph::ready_jobs(mlp.threads)) -
                         (kInner - 1) * inner_jobs - (kOuter - 1) * outer_jobs;
  const double more = std::max(0.0, missing) / (inner_jobs + outer_jobs);
  const std::int64_t needed = kInner * inner + kOuter * outer + std::max(inner, outer) +
                              std::llround(more * static_cast<double>(inner + outer));
  const std::int64_t slabs = mlp.mlps * JobGraph::slab_count(mlp.rows);
  return std::min(slabs * (inner + outer), needed);
}

RuntimeBytes runtime_bytes() {
  // Seen beside what a process has before it computes: heap and stacks, and pages of the program.
  constexpr std::int64_t kRankLater = std::int64_t{3} << 19;
  constexpr std::int64_t kNodeLater = std::int64_t{2} << 20;
  const ResidentBytes now = resident_bytes();
  return {.rank = now.anonymous + kRankLater, .node = now.file + now.shared + kNodeLater};
}

std::int64_t expert_outputs(const ExpertTokens& tokens, const RankSharing& sharing) {
  return std::llround(pass_rows(tokens, sharing).outputs);
}

std::int64_t exchange_bytes(const ExpertTokens& tokens, const RankSharing& sharing) {
  if (sharing.sharers == 1 || tokens.topk == 0) return 0;
  const PassRows rows = pass_rows(tokens, sharing);
  const bool has_codes = tokens.wire == WireForm::int8;
  const WireRows wire(nullptr,
                      has_codes ? WireCodec::bytes(tokens.wire, tokens.hidden)
                                : tokens.hidden * element_bytes(tokens.precision),
                      tokens.topk);
  const auto row = static_cast<double>(wire.row_bytes());
  const auto result = static_cast<double>(WireCodec::bytes(tokens.wire, tokens.hidden));
  const double others = sharing.sharers - 1;
  const double elsewhere = others / sharing.sharers;
  // Of the other ranks, those of other nodes, where rows go once a node.
  const double off_node =
      (sharing.sharers - static_cast<double>(sharing.sharers) / sharing.nodes) / others;
  const auto copies = [&](std::int64_t places) {
    return rows.tokens * static_cast<double>(std::min(tokens.topk, places));
  };
  const double received = std::max(rows.received * row, rows.results * result);
  const double sent =
      std::max(copies(sharing.nodes - 1) * row, off_node * elsewhere * rows.outputs * result);
  // An exchange there and one back, whose memory takes the next one of either kind.
  const double messages = sharing.nodes == 1 ? 0 : 2 * (off_node * received + sent);
  const double places = (copies(sharing.sharers - 1) + rows.outputs) * sizeof(std::int32_t);
  return std::llround(messages + places);
}

RoadRows road_rows(const ModelConfig& config, const Workload& work, const RankSharing& sharing) {
  const PassRows rows = pass_rows(expert_tokens({.config = config}, work), sharing);
  return {.ranks = sharing.sharers,
          .tokens = work.batch_tokens,
          .topk = config.experts_per_token,
          .outputs = std::llround(rows.outputs),
          .received = std::llround(rows.received)};
}

RankMemory plan_rank(const MemoryModel& model, const WeightBytes& weights, const Workload& work,
                     const RankSharing& sharing) {
  const ExpertTokens tokens = expert_tokens(model, work);
  const PassRows rows = pass_rows(tokens, sharing);
  RankMemory memory{.keeps_layers = work.keeps_layers};
  MemoryItems& own = memory.own;
  own[MemoryItem::expert] = weights.rank_bytes;
  own[MemoryItem::cache] =
      KvPool::bytes_of(model.config, model.precision, work.capacity, work.sequences);
  own[MemoryItem::activation] = activation_bytes(model.config, work, rows, sharing.threads) +
                                deferred_bytes(model, rows) +
                                product_bytes(model.config, weights, work, sharing);
  if (weights.device_bytes > 0) {
    own[MemoryItem::activation] +=
        pinned_pass_bytes(std::llround(rows.outputs), model.config.hidden_size) + model.graph_bytes;
  }
  own[MemoryItem::exchange] = exchange_bytes(tokens, sharing);
  if (sharing.nodes > 1 && model.deferred > 0) own[MemoryItem::exchange] *= 2;  // of two layers
  const bool is_halved = model.tries_halves && sharing.nodes > 1 && work.kept_bytes == 0 &&
                         tokens.tokens >= HalfBatchRule::kLeastRows;
  if (is_halved) {  // the second half beside a whole; of its results neighbours may read the last
    own[MemoryItem::exchange] += own[MemoryItem::exchange] / 2;
    own[MemoryItem::activation] +=
        output_bytes(model.config, rows) / (sharing.sharers > sharing.nodes ? 1 : 2);
  }
  own[MemoryItem::adapter] = work.adapter_bytes;
  own[MemoryItem::optimizer] = work.optimizer_bytes;
  const std::int64_t later = own.total() - own[MemoryItem::expert];
  own[MemoryItem::load] = std::max<std::int64_t>(0, load_bytes(weights, sharing) - later);
  const std::int64_t looked_up = std::max(work.texts_tokens, work.batch_tokens);
  memory.shared[MemoryItem::dense] = weights.node_bytes;
  memory.shared[MemoryItem::embedding] = embedding_bytes(weights.embedding_bytes, looked_up);
  return memory;
}

void require_memory(const MemoryPlan& plan, const MemoryLimit& limit, Verb verb) {
  if (plan.total() <= limit.available_bytes) return;
  fail(ErrorKind::resource,
       "not enough memory: {} {} need {} ({}), most of it for {}, but {} are available ({}); what "
       "would help: {}",
       plan.num_ranks, plan.num_ranks == 1 ? "rank would" : "ranks of this node would",
       format_bytes(plan.total()), items_text(plan),
       kItemTexts[static_cast<std::size_t>(plan.items.largest())],
       format_bytes(limit.available_bytes), limit.source, help_text(plan, verb));
}

std::int64_t positions_in(const ModelConfig& config, Precision precision, const Workload& work,
                          std::int64_t cache_bytes) {
  return largest_value(work.capacity, [&](std::int64_t positions) {
    return KvPool::bytes_of(config, precision, positions, work.sequences) <= cache_bytes;
  });
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
