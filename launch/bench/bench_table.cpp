#include "launch/bench/bench_table.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/memory.h"
#include "launch/job/model_facts.h"
#include "launch/results/result_table.h"

namespace moesaic {
namespace {

std::string test_name(const BenchTest& test) {
  const std::string prompt = test.n_prompt > 0 ? fmt::format("pp{}", test.n_prompt) : "";
  const std::string generation = test.n_gen > 0 ? fmt::format("tg{}", test.n_gen) : "";
  return prompt + (prompt.empty() || generation.empty() ? "" : "+") + generation;
}

std::vector<double> speeds(const BenchTest& test) {
  std::vector<double> result;
  for (const double seconds : test.seconds) {
    result.push_back(static_cast<double>(test.tokens) / seconds);
  }
  return result;
}

/// Shares of the roofs in the mean time.
struct Shares {
  double flops = 0;
  double memory = 0;
};

Shares roof_shares(const BenchTest& test, const Roofs& roofs) {
  const double seconds = mean_deviation(test.seconds).mean;
  return {.flops = test.flops / seconds / roofs.flops_per_second,
          .memory = test.bytes / seconds / roofs.bytes_per_second};
}

std::string percent(double share) {
  return share > 0 ? short_number(100 * share, 3) + " %" : "";
}

constexpr std::string_view kRow =
    "| {:<{}} | {:>10} | {:>10} | {:<15} | {:>7} | {:>5} | {:>5} | {:>11} | {:>20} | {:>8} | {:>8} "
    "|\n";

}  // namespace

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

MeanDeviation mean_deviation(const std::vector<double>& samples) {
  MeanDeviation result;
  const auto n = static_cast<double>(samples.size());
  if (samples.empty()) return result;
  for (const double sample : samples) result.mean += sample / n;
  if (samples.size() < 2) return result;
  for (const double sample : samples) {
    result.deviation += (sample - result.mean) * (sample - result.mean) / (n - 1);
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}

std::string BenchTable::add(const BenchTest& test, const Roofs& roofs) {
  if (form_ == ResultForm::md) {
    const std::string head = has_tests_ ? "" : markdown_head();
    has_tests_ = true;
    return head + markdown_row(test, roofs);
  }
  const ResultLine line = fields(test, roofs);
  return lines_.add({&line, 1});
}

std::string BenchTable::end() const {
  return lines_.end();
}

std::size_t BenchTable::model_width() const {
  return std::max<std::size_t>(model_.type.size(), 30);
}

std::string BenchTable::markdown_head() const {
  const std::string head =
      fmt::format(fmt::runtime(kRow), "model", model_width(), "size", "params", "backend",
                  "threads", "ranks", "batch", "test", "t/s", "of FLOPs", "of reads");
  return head + fmt::format(
                    "| {:-<{}} | ---------: | ---------: | --------------- | ------: | ----: | "
                    "----: | ----------: | -------------------: | -------: | -------: |\n",
                    "", model_width());
}

std::string BenchTable::markdown_row(const BenchTest& test, const Roofs& roofs) const {
  const MeanDeviation ts = mean_deviation(speeds(test));
  const Shares shares = roof_shares(test, roofs);
  return fmt::format(fmt::runtime(kRow), model_.type, model_width(), format_bytes(model_.bytes),
                     format_count(model_.parameters),
                     "CPU " + model_.isa + (model_.has_gpus ? ", GPU" : ""), test.threads,
                     model_.ranks, test.batch, test_name(test),
                     fmt::format("{} ± {}", short_number(ts.mean), short_number(ts.deviation)),
                     percent(shares.flops), percent(shares.memory));
}

ResultLine BenchTable::fields(const BenchTest& test, const Roofs& roofs) const {
  std::vector<double> nanoseconds;
  for (const double seconds : test.seconds) nanoseconds.push_back(std::round(seconds * 1e9));
  const MeanDeviation ns = mean_deviation(nanoseconds);
  const MeanDeviation ts = mean_deviation(speeds(test));
  const Shares shares = roof_shares(test, roofs);
  const auto number = [](double value) { return fmt::format("{}", value); };
  const auto whole = [](double value) { return fmt::format("{:.0f}", value); };
  std::vector<std::string> ns_samples;
  for (const double sample : nanoseconds) ns_samples.push_back(whole(sample));
  return {{"cpu_info", model_.cpu, true},
          {"backends", model_.has_gpus ? "CPU,GPU" : "CPU", true},
          {"isa", model_.isa, true},
          {"model_filename", model_.file, true},
          {"model_type", model_.type, true},
          {"model_size", fmt::format("{}", model_.bytes)},
          {"model_n_params", fmt::format("{}", model_.parameters)},
          {"n_batch", fmt::format("{}", test.batch)},
          {"n_threads", fmt::format("{}", test.threads)},
          {"n_ranks", fmt::format("{}", model_.ranks)},
          {"n_nodes", fmt::format("{}", model_.nodes)},
          {"n_prompt", fmt::format("{}", test.n_prompt)},
          {"n_gen", fmt::format("{}", test.n_gen)},
          {"routing", model_.routing, true},
          {"test_time", utc_now(), true},
          {"avg_ns", whole(ns.mean)},
          {"stddev_ns", whole(ns.deviation)},
          {"avg_ts", number(ts.mean)},
          {"stddev_ts", number(ts.deviation)},
          {"roof_flops_per_second", whole(roofs.flops_per_second)},
          {"roof_bytes_per_second", whole(roofs.bytes_per_second)},
          {"flops_share", number(shares.flops)},
          {"memory_share", number(shares.memory)},
          {"samples_ns", fmt::format("[{}]", fmt::join(ns_samples, ", "))},
          {"samples_ts", fmt::format("[{}]", fmt::join(speeds(test), ", "))}};
}

}  // namespace moesaic
