#include "launch/study/point_launcher.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/split.h"
#include "launch/job/srun_kinds.h"

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

Words srun_words(const StudyPoint& point) {
  Words words = {"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-n",
                 fmt::format("{}", point.ranks)};
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

/// By itself mpirun binds one or two ranks to a core each, and refuses more ranks than cores.
Words mpirun_words(const StudyPoint& point) {
  return {"mpirun", "-n", fmt::format("{}", point.ranks), "--oversubscribe", "--bind-to", "none"};
}

/// On the nodes of an allocation.
Words placing_mpirun_words(const StudyPoint& point) {
  Words words = mpirun_words(point);
  if (point.command.options.ranks_per_node > 0) {
    words.insert(words.end(), {"--map-by", fmt::format("ppr:{}:node", ranks_per_node(point))});
  }
  return words;
}

/// The launcher's words, and whether it puts ranks on nodes itself; else the program has to
/// pretend.
struct Launcher {
  Words words;
  bool places_ranks = false;
};

Launcher find_launcher(const std::string& launcher, const StudyPoint& point,
                       const LaunchPlace& place) {
  const bool chooses_slurm = launcher == "auto" && place.in_slurm;
  if (launcher == "srun" || (chooses_slurm && place.has_pmix)) return {srun_words(point), true};
  if (chooses_slurm) return {placing_mpirun_words(point), true};
  if (launcher == "mpirun" || launcher == "auto") return {mpirun_words(point), false};
  Words words = users_command(launcher, point);
  const bool is_srun = words.front() == "srun";
  return {std::move(words), is_srun || launcher.find("{ranks_per_node}") != std::string::npos};
}

}  // namespace

LaunchPlace LaunchPlace::here(const std::string& launcher) {
  const bool in_slurm = std::getenv("SLURM_JOB_ID") != nullptr;
  return {.program = std::filesystem::read_symlink("/proc/self/exe").string(),
          .in_slurm = in_slurm,
          .has_pmix = launcher != "auto" || !in_slurm || srun_has_pmix()};
}

std::vector<std::string> point_command(const std::string& launcher, const StudyPoint& point,
                                       const LaunchPlace& place) {
  auto [words, is_placed] = find_launcher(launcher, point, place);
  words.insert(words.end(), {place.program, "study", "point"});
  for (const std::string& word : point.words) {
    if (!is_placed || !word.starts_with("ranks-per-node=")) words.push_back(word);
  }
  return words;
}

}  // namespace moesaic
