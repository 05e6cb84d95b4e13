#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launch/bench/roofs.h"
#include "launch/options/option_values.h"
#include "launch/results/result_table.h"

namespace moesaic {

/// What was measured with.
struct BenchModel {
  std::string file{};
  std::string type{};
  std::int64_t bytes = 0;
  std::int64_t parameters = 0;
  std::string cpu{};
  std::string isa{};
  bool has_gpus = false;  // experts are on some
  std::string routing{};  // routing_text()
  int ranks = 1;
  int nodes = 1;
};

/// One test, over all ranks together.
struct BenchTest {
  std::int64_t n_prompt = 0;
  std::int64_t n_gen = 0;  // after the prompt, if there is one
  std::int64_t batch = 0;
  int threads = 1;                // of rank 0
  std::int64_t tokens = 0;        // of one repetition
  std::vector<double> seconds{};  // one a repetition
  double flops = 0;               // of one repetition
  double bytes = 0;  // of weights and cache that it has to read; 0: not limited by them
};

struct MeanDeviation {
  double mean = 0;
  double deviation = 0;  // of a sample: n - 1
};
[[nodiscard]] MeanDeviation mean_deviation(const std::vector<double>& samples);

/// The time now, ISO 8601.
[[nodiscard]] std::string utc_now();

/// A table with the column names of llama-bench, test by test.
class BenchTable {
 public:
  BenchTable(ResultForm form, BenchModel model)
      : form_(form), model_(std::move(model)), lines_(form) {}

  /// What is to be printed for the test that comes next, beside the roofs of as many threads.
  [[nodiscard]] std::string add(const BenchTest& test, const Roofs& roofs);
  /// What is to be printed after the last test.
  [[nodiscard]] std::string end() const;

 private:
  [[nodiscard]] ResultLine fields(const BenchTest& test, const Roofs& roofs) const;
  [[nodiscard]] std::string markdown_head() const;
  [[nodiscard]] std::string markdown_row(const BenchTest& test, const Roofs& roofs) const;
  [[nodiscard]] std::size_t model_width() const;

  ResultForm form_;
  BenchModel model_;
  ResultTable lines_;
  bool has_tests_ = false;
};

}  // namespace moesaic
