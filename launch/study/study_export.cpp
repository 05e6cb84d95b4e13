#include "launch/study/study_export.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/output_file.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

using ByRanks = std::map<std::int64_t, const Measurement*>;
using Values = std::function<std::vector<double>(const Measurement&)>;

std::map<std::string, ByRanks> groups_of(const std::vector<StudyRow>& rows) {
  const std::vector<std::string> labels = group_labels(rows);
  std::map<std::string, ByRanks> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& measurement = rows[i].record.measurement;
    if (!measurement || measurement->is_oversubscribed) continue;
    groups[labels[i].empty() ? "all" : labels[i]][measurement->ranks] = &*measurement;
  }
  return groups;
}

std::set<std::int64_t> common_ranks(const std::map<std::string, ByRanks>& groups) {
  std::set<std::int64_t> common;
  for (const auto& [label, points] : groups) {
    std::set<std::int64_t> own;
    for (const auto& [ranks, measurement] : points) own.insert(ranks);
    if (label == groups.begin()->first) common = own;
    std::erase_if(common, [&](std::int64_t ranks) { return !own.contains(ranks); });
  }
  return common;
}

}  // namespace

std::string extrap_text(const std::vector<StudyRow>& rows) {
  const std::map<std::string, ByRanks> groups = groups_of(rows);
  const std::set<std::int64_t> ranks = common_ranks(groups);
  require(!ranks.empty(), ErrorKind::usage,
          "no number of ranks was measured, with a core for each thread, in all groups of points");
  std::string text = fmt::format("PARAMETER ranks\nPOINTS {}\n", fmt::join(ranks, " "));
  const auto add = [&](const std::string& metric, const ByRanks& points, const Values& values) {
    text += fmt::format("METRIC {}\n", metric);
    for (const std::int64_t n : ranks) {
      text += fmt::format("DATA {}\n", fmt::join(values(*points.at(n)), " "));
    }
  };
  for (const auto& [label, points] : groups) {
    text += fmt::format("\nREGION {}\n", label);
    add("seconds", points, [](const Measurement& m) { return m.samples; });
    add("cpu_seconds", points, [](const Measurement& m) { return std::vector{m.cpu_seconds}; });
    for (std::size_t i = 0; i < kNumPhases; ++i) {
      add(fmt::format("{}_seconds", kPhaseNames[i]), points,
          [&](const Measurement& m) { return std::vector{m.phases[i].mean}; });
    }
  }
  return text;
}

int run_export_extrap(const Command& command) {
  const StudyConfig study = read_study(command.options.study_config);
  const std::string path = (std::filesystem::path(study.out) / "extrap.txt").string();
  replace_file(path, extrap_text(read_results(study)));
  fmt::print("{}\n", path);
  return 0;
}

}  // namespace moesaic
