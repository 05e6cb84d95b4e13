#include "launch/study/point_launcher.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "launch/options/split.h"

namespace moesaic {
namespace {

using Words = std::vector<std::string>;

void replace_all(std::string& text, std::string_view name, const std::string& value) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
    text.replace(at, name.size(), value);
    at += value.size();
  }
}

std::int64_t ranks_per_node(const StudyPoint& point) {
  const std::int64_t told = point.command.options.ranks_per_node;
  return told == 0 ? point.ranks : std::min(told, point.ranks);
}

std::int64_t num_nodes(const StudyPoint& point) {
  return (point.ranks + ranks_per_node(point) - 1) / ranks_per_node(point);
}

Words users_command(const std::string& launcher, const StudyPoint& point) {
  std::string text = launcher;
  replace_all(text, "{ranks}", fmt::format("{}", point.ranks));
  replace_all(text, "{ranks_per_node}", fmt::format("{}", ranks_per_node(point)));
  replace_all(text, "{nodes}", fmt::format("{}", num_nodes(point)));
  replace_all(text, "{link}", point.link);
  Words words;
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

Words launcher_words(const std::string& launcher, const StudyPoint& point, bool in_slurm) {
  const std::string ranks = fmt::format("{}", point.ranks);
  const bool srun = launcher == "srun" || (launcher == "auto" && in_slurm);
  if (srun) {
    Words words = {"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-n", ranks};
    if (point.command.options.ranks_per_node > 0) {
      words.push_back(fmt::format("--nodes={}", num_nodes(point)));
      words.push_back(fmt::format("--ntasks-per-node={}", ranks_per_node(point)));
    }
    // What sbatch was told does not reach it by itself, from Slurm 22.05 to 23.02.
    if (const std::int64_t threads = point.command.options.threads; threads > 0) {
      words.push_back(fmt::format("--cpus-per-task={}", threads));
    }
    return words;
  }
  // By itself mpirun binds one or two ranks to a core each, and refuses more ranks than cores.
  if (launcher == "mpirun" || launcher == "auto") {
    return {"mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none"};
  }
  return users_command(launcher, point);
}

/// Whether the launcher itself puts so many ranks on a node; else the program has to pretend.
bool places_ranks(const Words& launcher, const std::string& text) {
  return launcher.front() == "srun" || text.find("{ranks_per_node}") != std::string::npos;
}

}  // namespace

LaunchPlace LaunchPlace::here() {
  return {.program = std::filesystem::read_symlink("/proc/self/exe").string(),
          .in_slurm = std::getenv("SLURM_JOB_ID") != nullptr};
}

std::vector<std::string> point_command(const std::string& launcher, const StudyPoint& point,
                                       const LaunchPlace& place) {
  Words words = launcher_words(launcher, point, place.in_slurm);
  const bool is_placed = places_ranks(words, launcher);
  words.insert(words.end(), {place.program, "study", "point"});
  for (const std::string& word : point.words) {
    if (!is_placed || !word.starts_with("ranks-per-node=")) words.push_back(word);
  }
  return words;
}

}  // namespace moesaic
