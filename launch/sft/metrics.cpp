#include "launch/sft/metrics.h"

#include <fmt/core.h>

#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"

namespace moesaic {
namespace {

std::string metrics_path(const std::string& directory) {
  return fmt::format("{}/{}", directory, kMetricsFile);
}

/// The step that a line is of; 0 for those that have none.
std::int64_t step_of(const Json& line) {
  const auto step = line.find("step");
  return step ? step->as_int() : 0;
}

/// Of the samples of an evaluation; empty in lines of earlier versions.
std::string digest_of(const Json& line) {
  const auto digest = line.find("digest");
  return digest ? digest->as_string() : "";
}

void add_to(LossCurves& curves, const Json& line) {
  const std::string event = line.at("event").as_string();
  const auto loss = line.find("loss");  // null for what is no number
  const LossPoint point{step_of(line),
                        loss ? loss->as_double() : std::numeric_limits<double>::quiet_NaN()};
  if (event == "step") curves.train.push_back(point);
  if (event == "eval") curves.held_out.push_back(point);
}

}  // namespace

std::string metrics_line(const StepMetrics& step) {
  JsonWriter line;
  line.field("event", "step")
      .field("step", step.step)
      .field("epoch", step.epoch)
      .field("loss", step.loss)
      .field("grad_norm", step.grad_norm)
      .field("lr", step.learning_rate)
      .field("samples", step.samples)
      .field("tokens", step.tokens)
      .field("trained_tokens", step.trained_tokens)
      .field("seconds", step.seconds)
      .field("tokens_per_second",
             step.seconds > 0 ? static_cast<double>(step.tokens) / step.seconds : 0)
      .field("balance_loss", step.balance_loss)
      .field("load_max_over_mean", step.load_max_over_mean)
      .field("wait_seconds", step.wait_seconds);
  if (step.skipped) line.field("skipped", true);
  return line.text();
}

std::string metrics_line(const EvalMetrics& eval) {
  return JsonWriter()
      .field("event", "eval")
      .field("step", eval.step)
      .field("loss", eval.loss)
      .field("trained_tokens", eval.trained_tokens)
      .field("seconds", eval.seconds)
      .field("digest", eval.digest)
      .text();
}

MetricsFile::MetricsFile(std::string directory, std::int64_t last_step)
    : directory_(std::move(directory)) {
  const std::string kept = take_old_lines(last_step);
  replace_file(metrics_path(directory_), kept);
  file_ = OutputFile(metrics_path(directory_), OutputFile::Mode::kept);
  end_byte_ = std::ssize(kept);
}

std::string MetricsFile::take_old_lines(std::int64_t last_step) {
  const std::string path = metrics_path(directory_);
  std::ifstream old(path, std::ios::binary);
  require(old.is_open() || !file_exists(path), ErrorKind::file, "{}: cannot be read", path);
  std::string kept;
  std::int64_t number = 0;
  for (std::string text; std::getline(old, text);) {
    if (old.eof()) break;  // cut short
    const std::string where = fmt::format("{} line {}", path, ++number);
    try {
      const Json line = Json::parse(text, where);
      if (last_step < 0 || step_of(line) > last_step) continue;
      add_to(curves_, line);
      if (line.at("event").as_string_view() == "eval") count_evaluation(digest_of(line));
    } catch (const Error& error) {
      fail(ErrorKind::file, "{}; to go on, take out the line or move the file: it is for curves",
           error.what());
    }
    kept += text + "\n";
  }
  require(!old.bad(), ErrorKind::file, "{}: cannot be read", path);  // which is not its end
  return kept;
}

std::int64_t MetricsFile::last_evaluation(std::string_view digest) const {
  if (curves_.held_out.empty() || held_out_digest_ != digest) return -1;
  return static_cast<std::int64_t>(curves_.held_out.back().step);
}

/// The last one of the curve.
void MetricsFile::count_evaluation(const std::string& digest) {
  if (digest != held_out_digest_) first_held_out_ = curves_.held_out.size() - 1;
  held_out_digest_ = digest;
}

std::optional<LossPoint> MetricsFile::lowest_held_out(
    const std::function<bool(std::int64_t steps)>& counts) const {
  std::optional<LossPoint> lowest;
  for (std::size_t i = first_held_out_; i < curves_.held_out.size(); ++i) {
    const LossPoint& point = curves_.held_out[i];
    if (counts && !counts(point.step)) continue;
    if (std::isfinite(point.loss) && (!lowest || point.loss <= lowest->loss)) lowest = point;
  }
  return lowest;
}

void MetricsFile::write(const std::string& line) {
  waiting_ += line + "\n";
  file_.write_at(end_byte_, std::as_bytes(std::span(waiting_)));
  end_byte_ += std::ssize(waiting_);
  waiting_.clear();
}

std::string MetricsFile::write_or_keep(const std::string& line) {
  try {
    write(line);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string MetricsFile::add(const StepMetrics& step) {
  curves_.train.push_back({step.step, step.loss});
  return write_or_keep(metrics_line(step));
}

std::string MetricsFile::add(const EvalMetrics& eval) {
  curves_.held_out.push_back({eval.step, eval.loss});
  count_evaluation(eval.digest);
  return write_or_keep(metrics_line(eval));
}

void MetricsFile::write_plot() const {
  replace_file(fmt::format("{}/{}", directory_, kLossPlotFile), loss_svg(curves_));
}

}  // namespace moesaic
