#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/bench/roofs.h"
#include "launch/options/option_values.h"

namespace moesaic {

/// What was measured with.
struct BenchModel {
  std::string file{};
  std::string type{};
  std::int64_t bytes = 0;
  std::int64_t parameters = 0;
  std::string cpu{};
  std::string isa{};
  int threads = 1;  // of rank 0
  int ranks = 1;
  int nodes = 1;
  std::int64_t batch = 0;
};

/// One test, over all ranks together.
struct BenchTest {
  std::int64_t n_prompt = 0;
  std::int64_t n_gen = 0;
  std::int64_t tokens = 0;        // of one repetition
  std::vector<double> seconds{};  // one a repetition
  double flops = 0;               // of one repetition
  double bytes = 0;  // of weights and cache that it has to read; 0: not limited by them
};

struct BenchReport {
  BenchModel model;
  Roofs roofs;
  std::vector<BenchTest> tests;
};

struct MeanDeviation {
  double mean = 0;
  double deviation = 0;  // of a sample: n - 1
};
[[nodiscard]] MeanDeviation mean_deviation(const std::vector<double>& samples);

/// The report with the column names of llama-bench.
[[nodiscard]] std::string bench_report(const BenchReport& report, ResultForm form);

}  // namespace moesaic
