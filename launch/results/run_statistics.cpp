#include "launch/results/run_statistics.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/counted.h"
#include "base/json.h"
#include "base/memory.h"
#include "launch/job/gather.h"
#include "launch/options/option_help.h"
#include "launch/results/result_table.h"

namespace moesaic {
namespace {

/// Over the ranks.
struct Spread {
  double mean = 0;
  double most = 0;
};

template <typename Value>
Spread spread(const std::vector<RankStatistics>& ranks, Value&& value) {
  Spread result{.mean = 0, .most = value(ranks.front())};
  for (const RankStatistics& rank : ranks) {
    const double x = value(rank);
    result.mean += x / static_cast<double>(ranks.size());
    result.most = std::max(result.most, x);
  }
  return result;
}

Spread phase_spread(const std::vector<RankStatistics>& ranks, std::size_t phase) {
  return spread(ranks, [&](const RankStatistics& rank) { return rank.times.seconds[phase]; });
}

Spread row_spread(const std::vector<RankStatistics>& ranks) {
  return spread(ranks,
                [](const RankStatistics& rank) { return static_cast<double>(rank.load.rows); });
}

double imbalance(const Spread& rows) {
  return rows.mean > 0 ? rows.most / rows.mean : 1;
}

ExpertLoad load(const std::vector<RankStatistics>& ranks) {
  ExpertLoad sum;
  for (const RankStatistics& rank : ranks) sum += rank.load;
  return sum;
}

RowCounters traffic(const std::vector<RankStatistics>& ranks) {
  RowCounters sum;
  for (const RankStatistics& rank : ranks) sum += rank.traffic;
  return sum;
}

/// With the unit that leaves three or four digits.
std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s ", seconds);
}

std::string throughput_line(std::string_view label, const Throughput& work) {
  return fmt::format("{:<11}{:>9} {:<6}  {:>9}  {:>10} tokens/s\n", label, work.tokens,
                     work.tokens == 1 ? "token" : "tokens", format_seconds(work.seconds),
                     short_number(work.tokens_per_second()));
}

std::string phase_lines(const std::vector<RankStatistics>& ranks) {
  double total = 0;
  for (std::size_t i = 0; i < kNumPhases; ++i) total += phase_spread(ranks, i).mean;
  std::string text = fmt::format("{:<11}{:>16}  {:>9}  {:>7}\n", "phase", "mean", "max", "share");
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    const Spread time = phase_spread(ranks, i);
    text +=
        fmt::format("{:<11}{:>16}  {:>9}  {:>5.1f} %\n", kPhaseNames[i], format_seconds(time.mean),
                    format_seconds(time.most), total > 0 ? 100 * time.mean / total : 0.0);
  }
  const double wait = phase_spread(ranks, static_cast<std::size_t>(Phase::wait)).mean;
  if (ranks.size() > 1 && wait > total / 2) {
    text += "wait is for other ranks: one without a text of its own lends its experts only\n";
  }
  return text;
}

std::string exchange_lines(const std::vector<RankStatistics>& ranks) {
  const Spread rows = row_spread(ranks);
  const Spread wait = phase_spread(ranks, static_cast<std::size_t>(Phase::wait));
  const RowCounters moved = traffic(ranks);
  std::string text =
      fmt::format("experts    {:.0f} rows a rank, at most {:.0f} ({:.2f} x the mean)\n", rows.mean,
                  rows.most, imbalance(rows));
  text += fmt::format("exchange   {} in nodes; ranks waited {}, at most {}\n",
                      format_bytes(moved.bytes_near), format_seconds(wait.mean),
                      format_seconds(wait.most));
  if (moved.messages > 0) {
    text += fmt::format(
        "           {} between nodes, in {} messages; {} rows saved by sending them "
        "once a node\n",
        format_bytes(moved.bytes_far), moved.messages, moved.rows_saved);
  }
  if (const ExpertLoad all = load(ranks); all.results_saved > 0) {
    text += fmt::format("           {} results, {}, saved by adding those of a rank there\n",
                        all.results_saved, format_bytes(all.result_bytes_saved));
  }
  return text;
}

std::string balance_line(const ExpertBalance& balance) {
  std::string text =
      fmt::format("balance    the busiest rank of a layer has {:.2f} x the mean", balance.placed);
  if (balance.placed != balance.contiguous) {
    text += fmt::format(", in contiguous slices it had {:.2f} x", balance.contiguous);
  }
  return text + "\n";
}

std::string throughput_json(const Throughput& work) {
  return JsonWriter()
      .field("tokens", work.tokens)
      .field("seconds", work.seconds)
      .field("tokens_per_second", work.tokens_per_second())
      .text();
}

std::string bytes_json(const WeightBytes::ByFormat& bytes) {
  JsonWriter out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) out.field(format_name(static_cast<Format>(i)), bytes[i]);
  }
  return out.text();
}

std::string phases_json(const std::vector<RankStatistics>& ranks) {
  JsonWriter phases;
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    const Spread time = phase_spread(ranks, i);
    phases.raw_field(
        kPhaseNames[i],
        JsonWriter().field("mean_seconds", time.mean).field("max_seconds", time.most).text());
  }
  return phases.text();
}

/// How rows, bytes and memory were shared out over the ranks.
void add_loads(const RunStatistics& run, JsonWriter& out) {
  const Spread rows = row_spread(run.ranks);
  const RowCounters moved = traffic(run.ranks);
  const ExpertLoad all = load(run.ranks);
  const Spread wait = phase_spread(run.ranks, static_cast<std::size_t>(Phase::wait));
  out.field("expert_rows_mean", rows.mean)
      .field("expert_rows_max", rows.most)
      .field("expert_imbalance", imbalance(rows))
      .field("layer_imbalance", run.balance.placed)
      .field("layer_imbalance_contiguous", run.balance.contiguous)
      .field("bytes_sent", all.bytes_sent)
      .field("bytes_near", moved.bytes_near)
      .field("bytes_far", moved.bytes_far)
      .field("messages", moved.messages)
      .field("rows_saved", moved.rows_saved)
      .field("results_saved", all.results_saved)
      .field("result_bytes_saved", all.result_bytes_saved)
      .field("wait_seconds_mean", wait.mean)
      .field("wait_seconds_max", wait.most);
  add_peak_memory(run.memory, out);
}

}  // namespace

std::vector<RankStatistics> gather_statistics(const Runtime& runtime,
                                              const Transformer& transformer) {
  return gather_values(runtime.world(), RankStatistics{.times = transformer.times(),
                                                       .load = transformer.load(),
                                                       .traffic = transformer.traffic()});
}

RunStatistics gather_run(const Runtime& runtime, Engine& engine, const StepStatistics& steps) {
  return {.load = engine.load(),
          .prompt = {steps.work.prompt_rows, steps.prompt_seconds},
          .generation = {steps.work.generation_rows, steps.generate_seconds},
          .shared_tokens = steps.work.shared_positions,
          .ranks = gather_statistics(runtime, engine.transformer()),
          .memory = gather_peak_memory(runtime),
          .balance = {},
          .wall_seconds = steps.wall_seconds};
}

std::string statistics_text(const RunStatistics& run) {
  std::string text =
      fmt::format("{:<11}{:>16}  {:>9}  {:>10} GB/s\n", "load", format_bytes(run.load.read_bytes),
                  format_seconds(run.load.seconds), short_number(run.load.gigabytes_per_second()));
  text += throughput_line("prompt", run.prompt);
  if (run.shared_tokens > 0) {
    text += fmt::format("{:<11}{:>9} tokens  of prompts that others had begun with\n", "shared",
                        run.shared_tokens);
  }
  if (run.generation.tokens > 0) text += throughput_line("generation", run.generation);
  text += fmt::format("\n{}\n", phase_lines(run.ranks));
  if (run.ranks.size() > 1) text += exchange_lines(run.ranks) + balance_line(run.balance);
  return text + peak_memory_text(run.memory, run.ranks.size());
}

std::string statistics_json(const RunStatistics& run, const Runtime& runtime) {
  JsonWriter out;
  out.field("ranks", static_cast<int>(run.ranks.size()))
      .field("nodes", runtime.num_nodes())
      .field("transport", runtime.world().transport())
      .field("isa", isa_name(runtime.compute().isa))
      .field("threads", runtime.self().threads)
      .field("load_seconds", run.load.seconds)
      .field("load_bytes", run.load.read_bytes)
      .field("load_gigabytes_per_second", run.load.gigabytes_per_second())
      .raw_field("expert_bytes", bytes_json(run.load.experts))
      .raw_field("other_weight_bytes", bytes_json(run.load.others))
      .raw_field("prompt", throughput_json(run.prompt));
  out.field("shared_prompt_tokens", run.shared_tokens);
  if (run.generation.tokens > 0) out.raw_field("generation", throughput_json(run.generation));
  if (!run.sampling.empty()) out.raw_field("sampling", run.sampling);
  if (run.wall_seconds > 0) {
    out.field("wall_seconds", run.wall_seconds)
        .field("shares", "a step's seconds are shared by its rows; a first token is its prompt's");
  }
  out.raw_field("phases", phases_json(run.ranks));
  add_loads(run, out);
  return out.raw_field("config", config_json(runtime.command())).text();
}

std::string runtime_text(const Runtime& runtime) {
  const auto [least, most] = std::minmax_element(
      runtime.ranks().begin(), runtime.ranks().end(),
      [](const RankInfo& a, const RankInfo& b) { return a.threads < b.threads; });
  const std::string threads = least->threads == most->threads
                                  ? counted(most->threads, "thread")
                                  : fmt::format("{} to {} threads", least->threads, most->threads);
  return fmt::format("{} on {}, {} each; rows by {}; instruction set {}",
                     counted(runtime.world().size(), "rank"), counted(runtime.num_nodes(), "node"),
                     threads, runtime.world().transport(), isa_name(runtime.compute().isa));
}

void announce(const Runtime& runtime) {
  runtime.log().once(LogLevel::info, "{}", runtime_text(runtime));
}

}  // namespace moesaic
