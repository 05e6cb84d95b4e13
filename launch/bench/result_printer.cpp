#include "launch/bench/result_printer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>

#include "base/counted.h"
#include "base/error.h"
#include "launch/options/choices.h"

namespace moesaic {
ResultForm result_form(const Options& options) {
  if (!options.json) return options.output;
  require(options.output != ResultForm::csv, ErrorKind::usage,
          "--json and --output csv exclude each other");
  return options.output == ResultForm::json ? ResultForm::json : ResultForm::jsonl;
}

void print_results(const Runtime& runtime, const std::string& text) {
  if (!runtime.is_first()) return;
  fmt::print("{}", text);
  flush_output();
}

std::string about(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  if (seconds < 1.5 * kMinute) return fmt::format("about {:.0f} s", std::ceil(seconds));
  if (seconds < 1.5 * kHour) return fmt::format("about {:.0f} min", seconds / kMinute);
  return fmt::format("about {:.0f} h", seconds / kHour);
}

ResultPrinter::ResultPrinter(const Runtime& runtime, const BenchAmount& amount)
    : runtime_(runtime), table_(result_form(runtime.options())), total_(amount.lines) {
  const double seconds = static_cast<double>(amount.lines) * amount.seconds_of_line +
                         static_cast<double>(amount.groups) * amount.seconds_of_group;
  runtime.log().once(LogLevel::info, "{} in {}", counted(amount.lines, "line"), about(seconds));
  const bool lines_are_seen = isatty(STDOUT_FILENO) != 0;
  progress_.emplace("lines",
                    lines_are_seen || !runtime.is_first() || !runtime.log().enabled(LogLevel::info),
                    [](std::int64_t count) { return fmt::format("{}", count); });
}

void ResultPrinter::add(const std::vector<ResultLine>& lines) {
  print_results(runtime_, table_.add(lines));
  progress_->update(done_ += std::ssize(lines), total_);
}

void ResultPrinter::end() {
  progress_.reset();
  print_results(runtime_, table_.end());
}

}  // namespace moesaic
