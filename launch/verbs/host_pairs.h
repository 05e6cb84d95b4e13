#pragma once

#include <span>
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

/// A line each.
[[nodiscard]] std::string pairs_text(std::span<const HostPair> pairs);
[[nodiscard]] std::string pairs_json(std::span<const HostPair> pairs);

/// What is odd about this launch besides launch_warnings(), with what to type: ranks over NUMA
/// nodes that others could have, a process alone in a Slurm job of several tasks.
[[nodiscard]] std::vector<std::string> advice(std::span<const RankInfo> ranks);

}  // namespace moesaic
