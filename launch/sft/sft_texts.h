#pragma once

#include <cstdint>
#include <string>

#include "launch/sft/metrics.h"
#include "launch/sft/sft_data.h"
#include "launch/sft/sft_setup.h"

namespace moesaic {

/// How a run begins.
struct RunStart {
  std::int64_t done = 0;  ///< steps before
  int ranks = 1;
  std::string digest{};
};

/// The line of metrics.jsonl that a run begins with.
[[nodiscard]] std::string start_line(const SftSetup& setup, const SftData& data,
                                     const RunStart& start);
/// What a run is about to do, for the terminal.
[[nodiscard]] std::string start_text(const Options& options, const SftSetup& setup,
                                     const SftData& data);
/// What config.json asks training for, and nothing here does: "attention_dropout 0.1, ...".
[[nodiscard]] std::string unused_training(const std::string& directory);
/// A step that is done, for the terminal.
[[nodiscard]] std::string step_text(const StepMetrics& metrics, std::int64_t total_steps,
                                    double seconds_left);
/// What to do with the result.
[[nodiscard]] std::string end_text(const Options& options, const SftSetup& setup);

}  // namespace moesaic
