#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/topology.h"
#include "comm/communicator.h"
#include "kernels/cpu_features.h"
#include "launch/job/launcher.h"

namespace moesaic {

/// What one rank tells the others about itself when the job starts. Travels as bytes.
///
/// Where a rank is has three answers, since one computer can be several of each:
/// * its machine, whose cores it has: one running system, also where its containers and network
///   namespaces have names of their own, but for containers with a quota, which have cores of their
///   own. Threads, binding and all that is said of cores go by it;
/// * its host, by name: what people and launchers call it, and what a network reaches;
/// * its node (ProcessGrid::node): ranks that share memory, or that --ranks-per-node takes
///   together. How rows travel, and whose memory is counted together, goes by it.
struct RankInfo {
  std::array<char, 64> host{};
  std::array<char, 128> machine{};
  std::array<char, 256> cpuset{};  // usable hardware threads, such as "0-3,8" (set_cpuset)
  std::int32_t node = 0;           // index of its node, in order of the nodes' lowest ranks
  std::int32_t cores = 1;          // physical cores it may use
  std::int32_t machine_cores = 1;
  std::int32_t numa_nodes = 1;
  std::int32_t threads = 1;
  std::uint32_t isas = 1;  // bit 1 << Isa: supported
  bool prefers_avx512_bf16 = false;
  bool cpuset_is_cut = false;          // it was longer: the first ones stand there
  std::array<char, 96> amx_refusal{};  // why the system refuses AMX, which the CPU has; or empty

  [[nodiscard]] std::string_view host_name() const noexcept { return host.data(); }
  [[nodiscard]] std::string_view cpus() const noexcept { return cpuset.data(); }
  [[nodiscard]] bool supports(Isa isa) const noexcept {
    return (isas >> static_cast<unsigned>(isa) & 1U) != 0;
  }
};

/// The table of all ranks, of which `own` is what this one may use. `threads` 0 gives each rank its
/// share of the cores that it may use; more is taken as it is. Collective over both.
[[nodiscard]] std::vector<RankInfo> gather_ranks(Communicator& world, Communicator& node,
                                                 const Topology& own, std::int64_t threads);

void set_cpuset(RankInfo& info, std::string_view cpus);

/// Whether two lists such as "0-3,8" have a number in common.
[[nodiscard]] bool cpusets_overlap(std::string_view a, std::string_view b);

[[nodiscard]] bool on_one_machine(const RankInfo& a, const RankInfo& b) noexcept;
[[nodiscard]] bool on_one_host(const RankInfo& a, const RankInfo& b) noexcept;
/// Whether there is a core that both may use.
[[nodiscard]] bool share_a_core(const RankInfo& a, const RankInfo& b);

/// How many threads each rank gets when it does not say: its cores divided by the number of ranks
/// that may use any of them, at least 1.
[[nodiscard]] std::vector<int> share_cores(std::span<const RankInfo> ranks);

/// Threads of all ranks, and the cores that they have.
struct CoreUse {
  std::int64_t threads = 0;
  std::int64_t cores = 0;          // no more than threads
  bool is_oversubscribed = false;  // somewhere more threads than cores
};
[[nodiscard]] CoreUse core_use(std::span<const RankInfo> ranks);

/// What is odd about this launch, a line each, with what to type: ranks that share cores, a rank
/// bound to one core of many. `launcher` is what started them.
[[nodiscard]] std::vector<std::string> launch_warnings(std::span<const RankInfo> ranks,
                                                       const Launcher& launcher);

/// The instruction set that all ranks use: `wanted`, or the best that all have, where avx512_bf16
/// counts only if `portable` is false and every rank runs it fastest. Throws Error{usage} if a rank
/// lacks `wanted`, or if it is not portable and should be.
[[nodiscard]] Isa choose_isa(std::span<const RankInfo> ranks, std::optional<Isa> wanted,
                             bool portable);

/// Throws Error{usage} unless the ranks of each copy of the experts, so many each, lie on nodes in
/// the same way: with Combine::fast results depend on that.
void require_like_copies(std::span<const RankInfo> ranks, int sharers);

}  // namespace moesaic
