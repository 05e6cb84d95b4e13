#include "launch/plan/plan_report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/counted.h"
#include "base/json.h"
#include "base/memory.h"
#include "launch/results/result_table.h"

namespace moesaic {
namespace {

/// Which they are, or where that is another matter in each layer how many.
std::string held_text(const PlannedRank& rank) {
  if (rank.experts == 0) return "none";
  if (!rank.first_expert) return fmt::format("{}", rank.experts);
  return fmt::format("{}-{}", *rank.first_expert, *rank.first_expert + rank.experts - 1);
}

/// A line a rank; of many ranks the first ones, and how many they are.
std::string placement_lines(const JobMemory& memory) {
  constexpr std::size_t kMost = 16;
  std::string text = fmt::format("{:>6} {:>5}  {:<12} {:>12}\n", "rank", "node", "experts", "own");
  for (const PlannedRank& rank : memory.ranks) {
    if (static_cast<std::size_t>(rank.rank) == kMost) {
      return text + fmt::format("       ... {} ranks in all\n", memory.ranks.size());
    }
    const std::string experts = held_text(rank);
    text += fmt::format("{:>6} {:>5}  {:<12} {:>12}\n", rank.rank, rank.node, experts,
                        format_bytes(rank.bytes));
  }
  return text;
}

/// One GPU a rank.
std::string gpu_line(const PlanReport& report) {
  const GpuMemory& gpu = report.memory.gpu;
  if (gpu.weights == 0) return "";
  const std::string limit =
      report.gpu_limit ? fmt::format(" of {} (--gpu-memory)", format_bytes(*report.gpu_limit)) : "";
  return fmt::format("GPUs      {}{} on the fullest: {}\n", format_bytes(gpu.total()), limit,
                     gpu_items_text(gpu));
}

std::string recompute_line(const std::optional<PlannedRecompute>& recompute) {
  if (!recompute) return "";
  return fmt::format("recompute {}: {}\n",
                     recompute->is_done ? "layers run again before their backward pass"
                                        : "what layers compute is kept",
                     recompute->reason);
}

std::string disk_line(const std::optional<DiskDemand>& disk) {
  if (!disk) return "";
  const std::int64_t checkpoints = new_checkpoints(*disk).most;
  return fmt::format("disk      {} at most: {} {} of {}, the adapter {}\n",
                     format_bytes(demanded_bytes(*disk)), checkpoints,
                     checkpoints == 1 ? "checkpoint" : "checkpoints at a time",
                     format_bytes(disk->checkpoint_bytes), format_bytes(disk->adapter_bytes));
}

std::string traffic_line(const PlanReport& report) {
  const ExpertTraffic& traffic = report.traffic;
  if (report.ranks.ranks == 1) return "";
  return fmt::format(
      "traffic   a token and layer: {:.2f} rows out, {:.0f} bytes there and {:.0f} back, {:.0f} of "
      "them between nodes; {:.1f} messages of a rank in a pass\n",
      traffic.rows, traffic.dispatch_bytes, traffic.combine_bytes, traffic.inter_node_bytes,
      traffic.messages);
}

/// `what`: a kind of pass, "step" of fine-tuning, or "layer".
std::string cost_lines(std::string_view what, const StepCost& cost, double tokens_per_second) {
  std::string text = fmt::format("{:<10} {} tokens/s; a {} takes {:.3g} ms, most of it {}\n", what,
                                 short_number(tokens_per_second), what == "step" ? "step" : "pass",
                                 cost.seconds() * 1e3, cost.bound());
  std::vector<CostTerm> terms = cost.terms;
  std::ranges::sort(terms, std::ranges::greater(), &CostTerm::seconds);
  for (const CostTerm& term : terms) {
    if (term.seconds < cost.seconds() / 100) break;
    text += fmt::format("          {:>5.1f} %  {:<18} {:>8} {:<8} {}\n",
                        100 * term.seconds / cost.seconds(), term.name, short_number(term.quantity),
                        term.unit, term.source);
  }
  return text;
}

std::string time_lines(const PlanReport& report) {
  if (!report.time) return fmt::format("time      not told{}\n", report.no_time);
  const std::string_view of_model = report.time->is_training ? "step" : "prompt";
  std::string text = cost_lines(report.is_layer ? "layer" : of_model, report.time->prompt,
                                report.time->prompt_tokens_per_second);
  if (!report.time->generation.terms.empty()) {
    text += cost_lines("generation", report.time->generation,
                       report.time->generation_tokens_per_second);
  }
  return text + fmt::format("routing   {}\n", report.routing_source);
}

std::string largest_text(const PlanReport& report) {
  std::string text;
  const auto add = [&](std::string_view option, const std::optional<std::int64_t>& value) {
    if (!value) return;
    const std::string number = *value > 0 ? fmt::format("{}", *value) : "none";
    text += fmt::format("{}--{} {}", text.empty() ? "" : ", ", option, number);
  };
  add("ctx-size", report.largest_ctx_size);
  add("parallel", report.largest_parallel);
  add("batch-size", report.largest_batch_size);
  return text;
}

std::string largest_json(const PlanReport& report) {
  JsonWriter out;
  if (report.largest_ctx_size) out.field("ctx_size", *report.largest_ctx_size);
  if (report.largest_parallel) out.field("parallel", *report.largest_parallel);
  return out.field("batch_size", report.largest_batch_size).text();
}

std::string items_json(const MemoryItems& items) {
  JsonWriter out;
  for (std::size_t i = 0; i < kNumMemoryItems; ++i) out.field(kMemoryItemNames[i], items.bytes[i]);
  return out.text();
}

std::string gpu_json(const PlanReport& report) {
  const GpuMemory& gpu = report.memory.gpu;
  if (gpu.weights == 0) return "null";
  JsonWriter out;
  out.field("bytes", gpu.total()).field("expert", gpu.weights).field("rows", gpu.rows);
  if (report.gpu_limit) out.field("limit_bytes", *report.gpu_limit);
  return out.text();
}

std::string disk_json(const DiskDemand& disk) {
  return JsonWriter()
      .field("total", demanded_bytes(disk))
      .field("checkpoints", new_checkpoints(disk).most * disk.checkpoint_bytes)
      .field("adapter", disk.adapter_bytes)
      .text();
}

std::string ranks_json(const std::vector<PlannedRank>& ranks) {
  std::vector<std::string> texts;
  for (const PlannedRank& rank : ranks) {
    JsonWriter text;
    text.field("rank", rank.rank).field("node", rank.node);
    if (rank.first_expert) text.field("experts_start_idx", *rank.first_expert);
    text.field("experts", rank.experts).field("bytes", rank.bytes);
    if (rank.gpu.weights > 0) text.field("gpu_bytes", rank.gpu.total());
    texts.push_back(text.text());
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string traffic_json(const ExpertTraffic& traffic) {
  return JsonWriter()
      .field("rows", traffic.rows)
      .field("results", traffic.results)
      .field("dispatch_bytes", traffic.dispatch_bytes)
      .field("combine_bytes", traffic.combine_bytes)
      .field("inter_node_bytes", traffic.inter_node_bytes)
      .field("messages", traffic.messages)
      .text();
}

std::string phases_json(const StepCost& cost) {
  JsonWriter out;
  const PhaseTimes times = cost.phases();
  for (std::size_t i = 0; i < kNumPhases; ++i) out.field(kPhaseNames[i], times.seconds[i]);
  return out.text();
}

std::string terms_json(const StepCost& cost) {
  std::vector<std::string> texts;
  for (const CostTerm& term : cost.terms) {
    texts.push_back(JsonWriter()
                        .field("name", term.name)
                        .field("quantity", term.quantity)
                        .field("unit", term.unit)
                        .field("seconds", term.seconds)
                        .field("source", term.source)
                        .text());
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

/// `call` of the passes over prompts, and of those that generate.
template <typename Call>
std::string both_json(const JobTime& time, const Call& call) {
  JsonWriter out;
  out.raw_field("prompt", call(time.prompt));
  if (!time.generation.terms.empty()) out.raw_field("generation", call(time.generation));
  return out.text();
}

std::string time_json(const std::optional<JobTime>& time) {
  if (!time) return "null";
  return JsonWriter()
      .field("prompt_tokens_per_second", time->prompt_tokens_per_second)
      .field("generation_tokens_per_second", time->generation_tokens_per_second)
      .raw_field("phases", both_json(*time, phases_json))
      .raw_field("bound",
                 both_json(*time, [](const StepCost& cost) { return json_quote(cost.bound()); }))
      .raw_field("terms", both_json(*time, terms_json))
      .text();
}

/// Where bytes of an item come from that weights or the runtime do not tell.
struct ItemSource {
  MemoryItem item;
  std::string_view source;
};
constexpr std::array kItemSources = {
    ItemSource{MemoryItem::embedding,
               "pages of its file that tokens of the job touch, if each is any of the vocabulary"},
    ItemSource{MemoryItem::cache, "pages and states of sequences of sequence_tokens"},
    ItemSource{MemoryItem::activation,
               "the buffers of a forward pass, for experts as popular as routing says"},
    ItemSource{MemoryItem::exchange,
               "rows and results of other ranks in a pass, for experts as popular as routing says"},
    ItemSource{MemoryItem::adapter, "counted by the code that makes adapters"},
    ItemSource{MemoryItem::optimizer,
               "gradients and moments of what is trained, and sums over ranks under way"},
    ItemSource{MemoryItem::load, "what each thread has of files while it packs"}};

std::string sources_json(const PlanReport& report) {
  JsonWriter out;
  out.field("threads", report.threads_source);
  if (report.recompute) out.field("recompute", report.recompute->reason);
  out.field("weights", report.weights_source);
  for (const auto& [item, source] : kItemSources) {
    if (report.memory.node.items[item] == 0) continue;
    out.field(kMemoryItemNames[static_cast<std::size_t>(item)], source);
  }
  out.field("runtime", report.runtime_source)
      .field("limit", report.limit.source)
      .field("routing", report.routing_source)
      .field("traffic", "expected of tokens that choose experts as routing says");
  out.field("time", report.time ? "each of its terms has a source" : "not told" + report.no_time);
  return out.field("largest", "the largest for which the same count stays within the limits")
      .field("fewest_nodes", "the fewest for which the same count stays within the limits")
      .text();
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  const MemoryPlan& node = report.memory.node;
  std::string text =
      fmt::format("ranks     {} on {}, {} each\n\n", report.ranks.ranks,
                  counted(report.ranks.nodes(), "node"), counted(report.ranks.threads, "thread"));
  text += placement_lines(report.memory);
  text += fmt::format("\nmemory    {} of {} ({}) on a node: {}\n", format_bytes(node.total()),
                      format_bytes(report.limit.available_bytes), report.limit.source,
                      items_text(node));
  if (report.recompute) {  // of training
    text += fmt::format("samples   of up to {} tokens together, a rank at a time\n",
                        report.sequence_tokens);
  } else if (!report.is_layer) {
    text += fmt::format("texts     {} a rank at a time, of up to {} tokens\n", report.sequences,
                        report.sequence_tokens);
  }
  text += recompute_line(report.recompute) + disk_line(report.disk);
  text += gpu_line(report);
  text += fmt::format("weights   {}\n", report.weights_source);
  text += traffic_line(report) + time_lines(report);
  text += fmt::format("largest   {}, {}\n", largest_text(report),
                      report.is_layer ? "tokens of a rank" : "each with the others as they are");
  text += report.fewest_nodes == 0 ? "nodes     no number of them suffices\n"
                                   : fmt::format("nodes     {} at least, with as many ranks each\n",
                                                 report.fewest_nodes);
  return text + fmt::format("\n{}\n", report.command);
}

std::string plan_json(const PlanReport& report) {
  JsonWriter out;
  out.field("fits", report.fits())
      .field("per_node_bytes", report.memory.node.total())
      .field("limit_bytes", report.limit.available_bytes)
      .raw_field("items", items_json(report.memory.node.items))
      .field("nodes", report.ranks.nodes())
      .field("threads", report.ranks.threads)
      .field("sequences", report.sequences)
      .field("sequence_tokens", report.sequence_tokens);
  if (report.recompute) out.field("recompute", report.recompute->is_done);
  if (report.disk) out.raw_field("disk_bytes", disk_json(*report.disk));
  return out.raw_field("gpu", gpu_json(report))
      .raw_field("ranks", ranks_json(report.memory.ranks))
      .raw_field("traffic", traffic_json(report.traffic))
      .raw_field("time", time_json(report.time))
      .raw_field("largest", largest_json(report))
      .field("fewest_nodes", report.fewest_nodes)
      .field("command", report.command)
      .raw_field("sources", sources_json(report))
      .text();
}

}  // namespace moesaic
