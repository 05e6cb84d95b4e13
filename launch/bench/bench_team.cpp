#include "launch/bench/bench_team.h"

#include <fmt/core.h>

#include "base/counted.h"
#include "launch/results/result_table.h"

namespace moesaic {
namespace {

std::vector<std::int64_t> thread_counts(const Runtime& runtime) {
  const Options& options = runtime.options();
  if (!options.thread_counts.empty()) return options.thread_counts;
  const int cores = runtime.topology().usable_cores;
  return cores > 1 ? std::vector<std::int64_t>{1, cores} : std::vector<std::int64_t>{1};
}

}  // namespace

std::vector<std::unique_ptr<Team>> make_teams(const Runtime& runtime,
                                              std::span<const std::byte> memory) {
  std::vector<std::unique_ptr<Team>> teams;
  for (const std::int64_t threads : thread_counts(runtime)) {
    teams.push_back(std::make_unique<Team>(runtime.world(), static_cast<int>(threads), memory));
    runtime.bind(teams.back()->pool);
  }
  return teams;
}

std::vector<std::string> roof_lines(std::span<const std::unique_ptr<Team>> teams) {
  std::vector<std::string> lines;
  for (const auto& team : teams) {
    const RoofGauge& gauge = team->gauge;
    if (gauge.multiplies().empty()) continue;
    std::string line =
        fmt::format("roofs of {}: reads {} GB/s", counted(team->pool.size(), "thread"),
                    short_number(gauge.bytes_per_second() / 1e9));
    for (const auto& [loop, operations_per_second] : gauge.multiplies()) {
      line += fmt::format(", {} {} GOP/s", loop->instruction,
                          short_number(operations_per_second / 1e9));
    }
    lines.push_back(line);
  }
  return lines;
}

void log_roofs(const Runtime& runtime, std::span<const std::unique_ptr<Team>> teams) {
  for (const std::string& line : roof_lines(teams)) {
    runtime.log().once(LogLevel::info, "{}", line);
  }
}

}  // namespace moesaic
