#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "launch/job/runtime.h"
#include "launch/results/result_table.h"

namespace moesaic {

/// The form that --json or --output asks for. Throws Error{usage} if they contradict each other.
[[nodiscard]] ResultForm result_form(const Options& options);

/// Prints on rank 0, now.
void print_results(const Runtime& runtime, const std::string& text);

/// How much a benchmark is going to do, as far as can be told.
struct BenchAmount {
  std::int64_t lines = 0;
  double seconds_of_line = 0;
  std::int64_t groups = 0;      // of lines that are prepared together
  double seconds_of_group = 0;  // to prepare it, and for its roofs
};

/// Prints a table on rank 0: lines as soon as they are there.
class ResultPrinter {
 public:
  /// Says on the standard error output how long it will take, about. `runtime` must outlive this.
  ResultPrinter(const Runtime& runtime, const BenchAmount& amount);

  void add(const std::vector<ResultLine>& lines);
  void end();

 private:
  const Runtime& runtime_;
  ResultTable table_;
  std::optional<Progress> progress_;  // where lines are not seen coming
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

/// "about 40 s", "about 5 min", "about 2 h".
[[nodiscard]] std::string about(double seconds);

}  // namespace moesaic
