#include "launch/verbs/host_pairs.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/json.h"
#include "launch/results/result_table.h"

namespace moesaic {
namespace {

/// So many hosts have all their pairs measured.
constexpr std::size_t kMostHosts = 12;

/// The first rank of each host.
std::vector<int> first_ranks(std::span<const RankInfo> ranks) {
  std::vector<int> first;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const bool is_new = std::ranges::none_of(first, [&](int rank) {
      return on_one_host(ranks[static_cast<std::size_t>(rank)], ranks[r]);
    });
    if (is_new) first.push_back(static_cast<int>(r));
  }
  return first;
}

int environment_number(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);
}

}  // namespace

std::vector<HostPair> measure_host_pairs(const Runtime& runtime) {
  const std::vector<int> first = first_ranks(runtime.ranks());
  std::vector<HostPair> pairs;
  for (std::size_t a = 0; a < first.size(); ++a) {
    for (std::size_t b = a + 1; b < first.size(); ++b) {
      if (first.size() > kMostHosts && b != a + 1) continue;
      const auto name = [&](std::size_t host) {
        return std::string(runtime.ranks()[static_cast<std::size_t>(first[host])].host_name());
      };
      pairs.push_back({name(a), name(b), measure_pair(runtime.world(), first[a], first[b])});
    }
  }
  return pairs;
}

std::string pairs_text(std::span<const HostPair> pairs) {
  std::string text;
  for (const auto& [from, to, rates] : pairs) {
    text += fmt::format("hosts: {} to {}: {:.1f} us, {}\n", from, to, rates.latency_seconds * 1e6,
                        rates.bytes_per_second
                            ? short_number(*rates.bytes_per_second / 1e9) + " GB/s"
                            : "bandwidth too noisy to tell: hosts or network are busy");
  }
  return text;
}

std::string pairs_json(std::span<const HostPair> pairs) {
  std::vector<std::string> texts;
  for (const auto& [from, to, rates] : pairs) {
    JsonWriter text;
    text.field("from", from).field("to", to).field("microseconds", rates.latency_seconds * 1e6);
    if (rates.bytes_per_second) {
      text.field("bytes_per_second", *rates.bytes_per_second);
    } else {
      text.raw_field("bytes_per_second", "null");
    }
    texts.push_back(text.text());
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::vector<std::string> advice(std::span<const RankInfo> ranks) {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankInfo& rank = ranks[r];
    const auto shares = [&](const RankInfo& other) { return share_a_core(other, rank); };
    const auto sharers = std::ranges::count_if(ranks, shares);
    const bool is_first = std::ranges::none_of(ranks.first(r), shares);
    if (!is_first || rank.threads == 1 || sharers >= rank.numa_nodes) continue;
    lines.push_back(fmt::format(
        "{}: rank {} runs {} threads on {} NUMA nodes: a rank for each is faster, as by "
        "mpirun -n RANKS --map-by ppr:1:numa --bind-to numa or srun --ntasks-per-node={}",
        rank.host_name(), r, rank.threads, rank.numa_nodes, rank.numa_nodes));
  }
  const int tasks = environment_number("SLURM_NTASKS");
  if (ranks.size() == 1 && tasks > 1) {
    lines.push_back(fmt::format(
        "one process alone in a Slurm job of {} tasks: srun --mpi=pmix moesaic ... (srun "
        "--mpi=list shows whether it has pmix), or mpirun moesaic ...",
        tasks));
  }
  return lines;
}

}  // namespace moesaic
