#include "launch/job/lost_hosts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace moesaic {
namespace {

/// With values that make a host known as lost after six seconds.
constexpr std::array<std::pair<const char*, int>, 3> kKeepalives = {
    {{"OMPI_MCA_oob_tcp_keepalive_time", 3},
     {"OMPI_MCA_oob_tcp_keepalive_intvl", 1},
     {"OMPI_MCA_oob_tcp_keepalive_probes", 3}}};

}  // namespace

std::string lost_host_warning(std::span<const RankInfo> ranks,
                              const Launcher::Variables& variables) {
  const bool by_mpirun = Launcher(variables).is_mpirun();
  const bool is_one_host = std::ranges::all_of(
      ranks, [&](const RankInfo& rank) { return on_one_host(rank, ranks.front()); });
  if (!by_mpirun || is_one_host) return "";
  std::vector<std::string> missing;
  for (const auto& [name, value] : kKeepalives) {
    if (variables(name) == nullptr) missing.push_back(fmt::format("{}={}", name, value));
  }
  if (missing.empty()) return "";
  return fmt::format("mpirun waits for ever for a host that it cannot reach any more: set {}",
                     fmt::join(missing, " "));
}

}  // namespace moesaic
