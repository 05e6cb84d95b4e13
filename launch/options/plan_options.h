#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moesaic {

/// The verb whose work is planned.
enum class PlanJob { generate, serve, score, sft };

/// What `moesaic plan` takes besides the options of the verb whose work it plans.
struct PlanOptions {
  PlanJob plan_job = PlanJob::generate;
  std::int64_t plan_ranks = 1;
  std::int64_t prompt_tokens = 512;      // of a text of generate
  std::optional<std::string> machine;    // the file of doctor --measure; nothing: no times
  std::string plan_routing = "zipf:1";   // "even", "zipf:S", "model" or a file
  std::optional<std::string> plan_text;  // that the model chooses experts for

  /// Of moesaic doctor: where it writes what a machine does.
  std::optional<std::string> measure;

  /// Whether the model chooses experts itself, for plan_text.
  [[nodiscard]] bool asks_model() const { return plan_routing == "model"; }
};

}  // namespace moesaic
