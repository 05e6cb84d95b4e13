#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/parallel/step_work.h"

namespace moesaic {

// The time of a step's work on a machine that was measured. A step's time is the sum over layers of
// the slowest rank: ranks meet in every layer with experts.

/// A part of a step's time: `quantity` of `unit` at so many seconds each.
struct CostTerm {
  std::string name;                             // "experts.int8", "attention", "link.bytes"
  std::optional<Phase> phase = Phase::experts;  // none: of adapters and their optimizer
  double quantity = 0;
  std::string_view unit;  // "flop", "byte", "message", "row", ...
  double seconds = 0;     // of all of it
  std::string source;     // where the rate comes from
};

struct StepCost {
  std::vector<CostTerm> terms;

  [[nodiscard]] double seconds() const;
  [[nodiscard]] PhaseTimes phases() const;
  /// The name of the largest term.
  [[nodiscard]] const std::string& bound() const;
};

/// How much of each counts where ranks compute for some seconds and send between nodes for others,
/// most of either while the other goes on: together (compute^p + transfer^p)^(1/p), from the longer
/// of the two to 1.26 of it where they are alike. p = 3 is within 9 % of what layers and models
/// took (docs/performance.md).
struct OverlapShares {
  double compute = 1;
  double transfer = 1;
};
[[nodiscard]] OverlapShares overlap_shares(double compute, double transfer);

/// The time of that work. Throws Error{usage} for what the machine was not measured for: a format,
/// links that the ranks need.
[[nodiscard]] StepCost step_cost(const StepWork& work, const CostRanks& ranks,
                                 const MachineRates& machine);

}  // namespace moesaic
