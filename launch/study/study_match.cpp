#include "launch/study/study_match.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "launch/options/shell_word.h"
#include "launch/study/study_points.h"

namespace moesaic {
namespace {

using OptionValues = std::map<std::string, std::string>;

/// What tells a point from others.
OptionValues values_of(const PointRecord& record) {
  OptionValues values = record.options;
  values["kind"] = record.kind;
  values["ranks"] = fmt::format("{}", record.ranks);
  values["link"] = record.link;
  return values;
}

/// Options that the program was told in the command line that ran a point, without those that a
/// study makes itself.
std::set<std::string> told_names(const PointRecord& record) {
  const std::vector<std::string>& argv = record.launch.argv;
  std::set<std::string> names;
  for (auto word = std::ranges::find(argv, "point"); word != argv.end(); ++word) {
    const std::size_t equals = word->find('=');
    if (equals != std::string::npos) names.insert(word->substr(0, equals));
  }
  for (const char* made : {"sequences", "experts"}) names.erase(made);
  return names;
}

std::string value_or_none(const std::string& value) {
  return value.empty() ? "none" : value;
}

/// The points that a file describes.
class DescribedPoints {
 public:
  explicit DescribedPoints(const StudyConfig& study) : study_(study) {
    for (const StudyAxis& axis : study.axes) names_.insert(axis.name);
    for (const StudyPoint& point : planned_points(study, moesaic_environment())) {
      values_.push_back(values_of(new_point_record(study, point)));
    }
  }

  /// What `record` has that no point has: "batch-size = 16, and FILE has 4,8"; empty if it is one
  /// of the points. What neither file said comes from the environment, or the program: it does not
  /// count.
  [[nodiscard]] std::string difference(const PointRecord& record) const {
    const OptionValues own = values_of(record);
    std::set<std::string> names = told_names(record);
    names.insert(names_.begin(), names_.end());
    names.insert({"kind", "ranks", "link"});
    std::erase_if(names, [&](const std::string& name) { return !own.contains(name); });
    const auto is_alike = [&](const OptionValues& point) {
      return std::ranges::all_of(names, [&](const std::string& name) {
        const auto found = point.find(name);
        return found == point.end() || found->second == own.at(name);
      });
    };
    if (std::ranges::any_of(values_, is_alike)) return "";
    for (const std::string& name : names) {
      std::vector<std::string> others;  // in the order of the file
      for (const OptionValues& point : values_) {
        const auto found = point.find(name);
        if (found == point.end() || std::ranges::count(others, found->second) > 0) continue;
        others.push_back(found->second);
      }
      if (std::ranges::count(others, own.at(name)) > 0) continue;
      std::ranges::transform(others, others.begin(), value_or_none);
      return fmt::format("has {} = {}, and {} {}", name, value_or_none(own.at(name)), study_.path,
                         fmt::join(others, ","));
    }
    return fmt::format("is none of {}", study_.path);
  }

 private:
  const StudyConfig& study_;
  std::set<std::string> names_;  // that the file says
  std::vector<OptionValues> values_;
};

/// Those of the points; none if what they run is not here.
std::set<std::string> ids_of(const StudyConfig& study) {
  std::set<std::string> ids;
  try {
    for (const StudyPoint& point : study_points(study, moesaic_environment())) ids.insert(point.id);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
  }
  return ids;
}

}  // namespace

void require_points_of(const StudyConfig& study, const std::vector<StudyRow>& rows) {
  const DescribedPoints points(study);
  std::optional<std::set<std::string>> ids;
  for (const StudyRow& row : rows) {
    const std::string difference = points.difference(row.record);
    if (difference.empty()) continue;
    if (!ids) ids = ids_of(study);  // of the same files in other places
    require(ids->contains(row.record.id), ErrorKind::usage,
            "{}/study.jsonl: point {} {}: it is another study's; moesaic study run {} writes its "
            "own",
            study.out, row.record.id, difference, shell_word(study.path));
  }
}

}  // namespace moesaic
