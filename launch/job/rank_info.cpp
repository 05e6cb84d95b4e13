#include "launch/job/rank_info.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "kernels/sum_order.h"
#include "launch/job/gather.h"

namespace moesaic {
namespace {

using CpuRange = std::pair<int, int>;  // first, last

int parse_int(std::string_view text) {
  int value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::vector<CpuRange> parse_cpuset(std::string_view text) {
  std::vector<CpuRange> ranges;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t dash = item.find('-');
    const int first = parse_int(item.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : parse_int(item.substr(dash + 1));
    ranges.emplace_back(first, last);
  }
  return ranges;
}

template <std::size_t size>
void copy_text(std::string_view text, std::array<char, size>& out) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::copy_n(text.begin(), length, out.begin());
}

/// Of the running system; the host's name where it does not tell. A quota is a container's own,
/// and so are the cores that it allows: others on the same system do not take them.
std::string machine_name(bool has_quota) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (!std::getline(file, id)) return host_name();
  return has_quota ? id + " " + host_name() : id;
}

RankInfo describe_self(const Topology& topology, std::int64_t threads) {
  RankInfo info;
  copy_text(host_name(), info.host);
  copy_text(machine_name(topology.quota.cores > 0), info.machine);
  set_cpuset(info, topology.cpuset);
  info.cores = topology.usable_cores;
  info.machine_cores = topology.machine_cores;
  info.numa_nodes = topology.usable_numa_nodes;
  info.threads = static_cast<std::int32_t>(threads);
  info.isas = 0;
  for (const Isa isa : supported_isas()) info.isas |= 1U << static_cast<unsigned>(isa);
  info.prefers_avx512_bf16 = prefers_avx512_bf16();
  copy_text(amx_refusal(), info.amx_refusal);
  return info;
}

/// Index of this rank's node among all nodes.
std::int32_t node_index(Communicator& world, Communicator& node) {
  const std::int32_t leader = gather_values(node, world.rank()).front();
  std::vector<std::int32_t> leaders = gather_values(world, leader);
  std::sort(leaders.begin(), leaders.end());
  leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
  return static_cast<std::int32_t>(std::find(leaders.begin(), leaders.end(), leader) -
                                   leaders.begin());
}

}  // namespace

void set_cpuset(RankInfo& info, std::string_view cpus) {
  info.cpuset.fill('\0');
  info.cpuset_is_cut = cpus.size() >= info.cpuset.size();
  if (info.cpuset_is_cut) cpus = cpus.substr(0, cpus.rfind(',', info.cpuset.size() - 1));
  copy_text(cpus, info.cpuset);
}

bool cpusets_overlap(std::string_view a, std::string_view b) {
  const std::vector<CpuRange> others = parse_cpuset(b);
  const auto meets = [&](const CpuRange& range) {
    return std::any_of(others.begin(), others.end(), [&](const CpuRange& other) {
      return range.first <= other.second && other.first <= range.second;
    });
  };
  const std::vector<CpuRange> ranges = parse_cpuset(a);
  return std::any_of(ranges.begin(), ranges.end(), meets);
}

bool on_one_machine(const RankInfo& a, const RankInfo& b) noexcept {
  return a.machine == b.machine;
}

bool on_one_host(const RankInfo& a, const RankInfo& b) noexcept {
  return a.host_name() == b.host_name();
}

bool share_a_core(const RankInfo& a, const RankInfo& b) {
  return on_one_machine(a, b) && cpusets_overlap(a.cpus(), b.cpus());
}

std::vector<int> share_cores(std::span<const RankInfo> ranks) {
  std::vector<int> threads;
  for (const RankInfo& rank : ranks) {
    const auto sharers = std::count_if(ranks.begin(), ranks.end(), [&](const RankInfo& other) {
      return &other == &rank || share_a_core(rank, other);
    });
    threads.push_back(std::max(1, rank.cores / static_cast<int>(sharers)));
  }
  return threads;
}

CoreUse core_use(std::span<const RankInfo> ranks) {
  CoreUse use;
  double cores = 0;
  for (const RankInfo& rank : ranks) {
    std::int64_t threads = 0;  // on the cores of this rank
    for (const RankInfo& other : ranks) {
      if (share_a_core(rank, other)) threads += other.threads;
    }
    use.threads += rank.threads;
    use.is_oversubscribed = use.is_oversubscribed || threads > rank.cores;
    const double share = static_cast<double>(rank.cores) / static_cast<double>(threads);
    cores += rank.threads * std::min(1.0, share);
  }
  use.cores = std::llround(cores);
  return use;
}

std::vector<RankInfo> gather_ranks(Communicator& world, Communicator& node, const Topology& own,
                                   std::int64_t threads) {
  RankInfo self = describe_self(own, threads);
  self.node = node_index(world, node);
  std::vector<RankInfo> ranks = gather_values(world, self);
  const bool all_say = std::ranges::none_of(ranks, [](const auto& r) { return r.threads == 0; });
  if (all_say) return ranks;
  const std::vector<int> shares = share_cores(ranks);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].threads == 0) ranks[r].threads = shares[r];
  }
  return ranks;
}

namespace {

/// What to type for ranks that are to have `cores` each, if the launcher has bound them to fewer.
std::string unbinding_text(int cores, const Launcher& launcher) {
  if (launcher.is_mpirun()) return "mpirun --bind-to none";
  if (launcher.is_srun()) return fmt::format("srun --cpus-per-task={}", cores);
  return "";
}

/// What `ranks` of a machine with so many cores can do that share fewer.
std::string crowding_help(const RankInfo& rank, int ranks, int threads, const Launcher& launcher) {
  const int of_each = (threads + ranks - 1) / ranks;
  const std::string unbind = unbinding_text(of_each, launcher);
  if (rank.machine_cores >= threads && !unbind.empty()) return "; try " + unbind;
  if (rank.cores >= ranks) return fmt::format("; try --threads {}", rank.cores / ranks);
  return fmt::format("; at most {} here have a core each", counted(rank.cores, "rank"));
}

}  // namespace

std::vector<std::string> launch_warnings(std::span<const RankInfo> ranks,
                                         const Launcher& launcher) {
  std::vector<std::string> warnings;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankInfo& rank = ranks[i];
    int sharers = 0;
    int threads = 0;
    bool first = true;  // one line a group of ranks
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      if (i != j && !share_a_core(rank, ranks[j])) continue;
      first = first && j >= i;
      ++sharers;
      threads += ranks[j].threads;
    }
    if (first && threads > rank.cores) {
      warnings.push_back(fmt::format("{}: {} with {} share {} (cpus {}){}", rank.host_name(),
                                     counted(sharers, "rank"), counted(threads, "thread"),
                                     counted(rank.cores, "core"), rank.cpus(),
                                     crowding_help(rank, sharers, threads, launcher)));
    }
    const auto is_beside = [&](const RankInfo& other) { return on_one_machine(rank, other); };
    const bool first_there = std::ranges::none_of(ranks.first(i), is_beside);
    if (first_there && rank.amx_refusal[0] != '\0') {
      warnings.push_back(
          fmt::format("{}: the CPU has AMX, but the system refuses it ({}); AVX-512 "
                      "is used instead",
                      rank.host_name(), rank.amx_refusal.data()));
    }
    const auto beside = std::ranges::count_if(ranks, is_beside);
    if (first_there && rank.cores == 1 && rank.machine_cores > beside) {
      const std::string unbind =
          unbinding_text(rank.machine_cores / static_cast<int>(beside), launcher);
      warnings.push_back(fmt::format("{}: rank {} is bound to 1 of {} cores (cpu {}){}",
                                     rank.host_name(), i, rank.machine_cores, rank.cpus(),
                                     unbind.empty() ? "" : "; try " + unbind));
    }
  }
  return warnings;
}

Isa choose_isa(std::span<const RankInfo> ranks, std::optional<Isa> wanted, bool portable) {
  const auto all_support = [&](Isa isa) {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](const RankInfo& rank) { return rank.supports(isa); });
  };
  if (wanted) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      require(ranks[r].supports(*wanted), ErrorKind::usage,
              "--isa {}: the CPU of rank {} ({}) does not have it", isa_name(*wanted), r,
              ranks[r].host_name());
    }
    require(!portable || has_tile_order(*wanted), ErrorKind::usage,
            "--isa {} sums in an order of its own, which --numerics portable forbids",
            isa_name(*wanted));
    return *wanted;
  }
  Isa best = Isa::scalar;
  for (int number = 0; number < kNumIsas; ++number) {
    const auto isa = static_cast<Isa>(number);
    if (has_tile_order(isa) && all_support(isa)) best = isa;
  }
  const bool prefer_bf16 = std::all_of(
      ranks.begin(), ranks.end(), [](const RankInfo& rank) { return rank.prefers_avx512_bf16; });
  const bool is_faster = best < Isa::avx512_bf16 && prefer_bf16;
  return is_faster && !portable && all_support(Isa::avx512_bf16) ? Isa::avx512_bf16 : best;
}

void require_like_copies(std::span<const RankInfo> ranks, int sharers) {
  const auto count = static_cast<std::size_t>(sharers);
  const auto neighbour = [&](std::size_t copy, std::size_t rank) {  // the first on its node
    std::size_t first = 0;
    while (ranks[copy + first].node != ranks[copy + rank].node) ++first;
    return first;
  };
  for (std::size_t copy = count; copy < ranks.size(); copy += count) {
    for (std::size_t rank = 1; rank < count; ++rank) {
      require(neighbour(copy, rank) == neighbour(0, rank), ErrorKind::usage,
              "--combine fast: ranks {0} to {1} lie on nodes in another way than ranks 0 to {2}, "
              "so that equal texts would get other results there; give each copy of the experts "
              "(--expert-replicas) whole nodes, or nodes whole copies",
              copy, copy + count - 1, count - 1);
    }
  }
}

}  // namespace moesaic
