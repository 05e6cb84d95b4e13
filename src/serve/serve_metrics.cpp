#include "src/serve/serve_metrics.h"

#include <fmt/core.h>

namespace moesaic {
namespace {

/// What stands before the samples of a metric.
std::string metric_head(std::string_view name, std::string_view type, std::string_view help) {
  return fmt::format("# HELP moesaic_{0} {2}\n# TYPE moesaic_{0} {1}\n", name, type, help);
}

template <typename Number>
std::string metric(std::string_view name, std::string_view type, Number value,
                   std::string_view help) {
  return metric_head(name, type, help) + fmt::format("moesaic_{} {}\n", name, value);
}

}  // namespace

void ServeMetrics::count(std::string_view reason) {
  const auto found = finished_.find(reason);
  ++(found != finished_.end() ? found->second : finished_[std::string(reason)]);
}

void ServeMetrics::add_finished(std::string_view reason, double seconds) {
  count(reason);
  request_.add(seconds);
}

std::string ServeMetrics::text(const Now& now) const {
  const auto duration = [](std::string_view name, const Duration& sums, std::string_view help) {
    return metric_head(name, "summary", help) +
           fmt::format("moesaic_{0}_sum {1}\nmoesaic_{0}_count {2}\n", name, sums.sum, sums.count);
  };
  std::string text =
      metric("requests_running", "gauge", now.running, "Texts that ranks work on.") +
      metric("requests_waiting", "gauge", now.waiting, "Texts that wait for a rank.") +
      metric("prompt_tokens_total", "counter", prompt_tokens_, "Tokens of prompts that came.") +
      metric("generation_tokens_total", "counter", generated_tokens_, "Tokens generated.") +
      metric("requests_refused_total", "counter", refused_, "Calls that were refused.") +
      metric_head("requests_finished_total", "counter", "Texts that ended, by finish_reason.");
  for (const auto& [reason, count] : finished_) {
    text +=
        fmt::format("moesaic_requests_finished_total{{finish_reason=\"{}\"}} {}\n", reason, count);
  }
  return text +
         duration("time_to_first_token_seconds", first_token_,
                  "From a call to the first token of each text.") +
         duration("request_seconds", request_, "From a call to the end of each text.") +
         metric("uptime_seconds", "gauge", now.uptime_seconds, "Since the server began.");
}

}  // namespace moesaic
