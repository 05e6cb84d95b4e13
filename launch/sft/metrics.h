#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/output_file.h"
#include "launch/sft/loss_plot.h"

namespace moesaic {

/// What happened in one step, over all ranks.
struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double epoch = 0;       // passes over the data so far
  double loss = 0;        // mean over the trained tokens of the step
  double grad_norm = 0;   // before clipping
  double learning_rate = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t trained_tokens = 0;
  double seconds = 0;
  double balance_loss = 0;
  double load_max_over_mean = 0;  // rows of the busiest rank's experts by the mean
  double wait_seconds = 0;        // of this rank, for others
  bool skipped = false;           // it was not finite
};

struct EvalMetrics {
  std::int64_t step = 0;
  double loss = 0;
  std::int64_t trained_tokens = 0;
  double seconds = 0;
  std::string digest{};  // of the held-out samples
};

[[nodiscard]] std::string metrics_line(const StepMetrics& step);
[[nodiscard]] std::string metrics_line(const EvalMetrics& eval);

inline constexpr std::string_view kMetricsFile = "metrics.jsonl";
inline constexpr std::string_view kLossPlotFile = "loss.svg";

/// OUT/metrics.jsonl and OUT/loss.svg: a line an event, written when it happens.
class MetricsFile {
 public:
  /// Goes on behind what is there, but for lines of steps after `last_step`, which will happen
  /// again; negative: all will. What a run that was killed has left of its last line is dropped.
  /// Throws Error{file} naming a line that no run has written, Error{resource} if the disk refuses.
  MetricsFile(std::string directory, std::int64_t last_step);

  /// The step of the last evaluation there; -1 if there is none, or it was of other samples.
  [[nodiscard]] std::int64_t last_evaluation(std::string_view digest) const;
  /// The lowest loss of the samples of the last evaluation, of equal ones the last, after steps
  /// that count; nothing if none is a number.
  [[nodiscard]] std::optional<LossPoint> lowest_held_out(
      const std::function<bool(std::int64_t steps)>& counts = {}) const;

  /// A JSON object. Throws Error{resource} when the disk refuses.
  void write(const std::string& line);
  /// Where the disk refuses, the line waits for the next one, and what the disk said is returned.
  [[nodiscard]] std::string add(const StepMetrics& step);
  [[nodiscard]] std::string add(const EvalMetrics& eval);
  /// The picture of all losses so far.
  void write_plot() const;

 private:
  /// Those that stay.
  std::string take_old_lines(std::int64_t last_step);
  std::string write_or_keep(const std::string& line);
  void count_evaluation(const std::string& digest);

  std::string directory_;
  OutputFile file_;
  std::int64_t end_byte_ = 0;
  std::string waiting_;  // lines that are not written yet
  LossCurves curves_;
  std::string held_out_digest_;     // of the last evaluation
  std::size_t first_held_out_ = 0;  // of the evaluations since other samples had one
};

}  // namespace moesaic
