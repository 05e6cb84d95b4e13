#include "launch/study/study_results.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/small_file.h"
#include "base/split.h"
#include "launch/options/shell_word.h"
#include "launch/study/point_file.h"
#include "launch/study/study_match.h"

namespace moesaic {
namespace {

std::string table_path(const StudyConfig& study) {
  return (std::filesystem::path(study.out) / "study.jsonl").string();
}

std::vector<StudyRow> read_rows(const StudyConfig& study, const std::vector<std::string>& ids) {
  const PointPlace place(study.out);
  std::vector<PointRecord> records;
  for (const std::string& id : ids) {
    if (file_exists(place.file(id))) records.push_back(read_point_record(place.file(id)));
  }
  return compare_points(std::move(records), study.baseline);
}

}  // namespace

std::vector<StudyRow> write_results(const StudyConfig& study, const std::vector<std::string>& ids) {
  // Tasks of an array may end at the same time: the last to write must have read all points.
  const OutputFile turn(table_path(study) + ".lock", OutputFile::Mode::kept);
  turn.wait_for_lock();
  std::vector<StudyRow> rows = read_rows(study, ids);
  replace_file(table_path(study), study_jsonl(rows));
  return rows;
}

std::vector<StudyRow> read_results(const StudyConfig& study) {
  const std::string path = table_path(study);
  require(file_exists(path), ErrorKind::usage, "{} is not there: moesaic study run {} makes it",
          path, shell_word(study.path));
  const PointPlace place(study.out);
  std::vector<std::string> ids;
  const std::string text = read_file(path, kMaxListBytes);
  std::int64_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    const std::string where = fmt::format("{} line {}", path, ++number);
    if (line.empty()) continue;
    const std::string id = Json::parse(line, where).at("point").as_string();
    require(std::ranges::find(ids, id) == ids.end(), ErrorKind::file, "{}: point {} again", where,
            id);
    require(file_exists(place.file(id)), ErrorKind::file,
            "{}: there is no {} of this point: moesaic study run {} writes {} anew", where,
            place.file(id), shell_word(study.path), path);
    ids.push_back(id);
  }
  std::vector<StudyRow> rows = read_rows(study, ids);
  require(!rows.empty(), ErrorKind::usage, "{} has no point: moesaic study run {} measures them",
          path, shell_word(study.path));
  require_points_of(study, rows);
  return rows;
}

std::string points_checksum(const std::vector<StudyRow>& rows) {
  std::string text;
  for (const StudyRow& row : rows) {
    if (row.record.measurement) text += row.record.id + " " + row.record.launch.start + "\n";
  }
  return checksum_text(checksum(text));
}

std::vector<std::string> group_labels(const std::vector<StudyRow>& rows, std::string_view without) {
  std::map<std::string, std::set<std::string>> values;
  const auto for_each = [without](const StudyRow& row, const auto& call) {
    if (!row.record.link.empty()) call("link", row.record.link);
    for (const auto& [name, value] : compared_options(row.record)) {
      if (name != without) call(name, value);
    }
  };
  for (const StudyRow& row : rows) {
    for_each(row, [&](const std::string& name, const std::string& v) { values[name].insert(v); });
  }
  std::vector<std::string> labels;
  for (const StudyRow& row : rows) {
    std::string& label = labels.emplace_back();
    for_each(row, [&](const std::string& name, const std::string& value) {
      if (values[name].size() < 2) return;
      label += fmt::format("{}{} {}", label.empty() ? "" : ", ", name, value);
    });
  }
  return labels;
}

}  // namespace moesaic
