#pragma once

#include <string>
#include <vector>

#include "launch/bench/link_measure.h"
#include "launch/job/runtime.h"

namespace moesaic {

/// What the first ranks of two hosts send each other.
struct HostPair {
  std::string from;
  std::string to;
  PairRates rates;
};

/// Of each pair of hosts, one way; of many hosts those of neighbours alone. Collective.
[[nodiscard]] std::vector<HostPair> measure_host_pairs(const Runtime& runtime);

/// What is odd about this launch besides launch_warnings(), with what to type: ranks over NUMA
/// nodes that others could have, a process alone in a Slurm job of several tasks.
[[nodiscard]] std::vector<std::string> advice(std::span<const RankInfo> ranks);

}  // namespace moesaic
