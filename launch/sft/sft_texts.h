#pragma once

#include <cstdint>
#include <string>

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
/// What to do with the result.
[[nodiscard]] std::string end_text(const Options& options, const SftSetup& setup);

}  // namespace moesaic
