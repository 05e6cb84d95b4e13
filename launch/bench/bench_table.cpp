#include "launch/bench/bench_table.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <ctime>

#include "base/memory.h"
#include "launch/bench/result_table.h"
#include "launch/job/model_facts.h"

namespace moesaic {
namespace {

std::string test_name(const BenchTest& test) {
  return test.n_prompt > 0 ? fmt::format("pp{}", test.n_prompt) : fmt::format("tg{}", test.n_gen);
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

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

ResultLine fields(const BenchReport& report, const BenchTest& test) {
  const BenchModel& model = report.model;
  std::vector<double> nanoseconds;
  for (const double seconds : test.seconds) nanoseconds.push_back(std::round(seconds * 1e9));
  const MeanDeviation ns = mean_deviation(nanoseconds);
  const MeanDeviation ts = mean_deviation(speeds(test));
  const Shares shares = roof_shares(test, report.roofs);
  const auto number = [](double value) { return fmt::format("{}", value); };
  const auto whole = [](double value) { return fmt::format("{:.0f}", value); };
  std::vector<std::string> ns_samples;
  for (const double sample : nanoseconds) ns_samples.push_back(whole(sample));
  return {{"cpu_info", model.cpu, true},
          {"backends", "CPU", true},
          {"isa", model.isa, true},
          {"model_filename", model.file, true},
          {"model_type", model.type, true},
          {"model_size", fmt::format("{}", model.bytes)},
          {"model_n_params", fmt::format("{}", model.parameters)},
          {"n_batch", fmt::format("{}", model.batch)},
          {"n_threads", fmt::format("{}", model.threads)},
          {"n_ranks", fmt::format("{}", model.ranks)},
          {"n_nodes", fmt::format("{}", model.nodes)},
          {"n_prompt", fmt::format("{}", test.n_prompt)},
          {"n_gen", fmt::format("{}", test.n_gen)},
          {"test_time", utc_now(), true},
          {"avg_ns", whole(ns.mean)},
          {"stddev_ns", whole(ns.deviation)},
          {"avg_ts", number(ts.mean)},
          {"stddev_ts", number(ts.deviation)},
          {"roof_flops_per_second", whole(report.roofs.flops_per_second)},
          {"roof_bytes_per_second", whole(report.roofs.bytes_per_second)},
          {"flops_share", number(shares.flops)},
          {"memory_share", number(shares.memory)},
          {"samples_ns", fmt::format("[{}]", fmt::join(ns_samples, ", "))},
          {"samples_ts", fmt::format("[{}]", fmt::join(speeds(test), ", "))}};
}

std::string percent(double share) {
  return share > 0 ? short_number(100 * share, 3) + " %" : "";
}

std::string markdown(const BenchReport& report) {
  const BenchModel& model = report.model;
  const std::size_t width = std::max<std::size_t>(model.type.size(), 30);
  constexpr std::string_view kRow =
      "| {:<{}} | {:>10} | {:>10} | {:<15} | {:>7} | {:>5} | {:>7} | {:>20} | {:>8} | {:>8} |\n";
  std::string text = fmt::format(fmt::runtime(kRow), "model", width, "size", "params", "backend",
                                 "threads", "ranks", "test", "t/s", "of FLOPs", "of reads");
  text += fmt::format(
      "| {:-<{}} | ---------: | ---------: | --------------- | ------: | ----: | "
      "------: | -------------------: | -------: | -------: |\n",
      "", width);
  for (const BenchTest& test : report.tests) {
    const MeanDeviation ts = mean_deviation(speeds(test));
    const Shares shares = roof_shares(test, report.roofs);
    text += fmt::format(fmt::runtime(kRow), model.type, width, format_bytes(model.bytes),
                        format_count(model.parameters), "CPU " + model.isa, model.threads,
                        model.ranks, test_name(test),
                        fmt::format("{} ± {}", short_number(ts.mean), short_number(ts.deviation)),
                        percent(shares.flops), percent(shares.memory));
  }
  return text + fmt::format("\nmeasured roofs of all ranks: {} GFLOP/s, {} GB/s of reads\n",
                            short_number(report.roofs.flops_per_second / 1e9),
                            short_number(report.roofs.bytes_per_second / 1e9));
}

}  // namespace

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

std::string bench_report(const BenchReport& report, ResultForm form) {
  if (form == ResultForm::md) return markdown(report);
  std::vector<ResultLine> lines;
  for (const BenchTest& test : report.tests) lines.push_back(fields(report, test));
  return result_table(lines, form);
}

}  // namespace moesaic
