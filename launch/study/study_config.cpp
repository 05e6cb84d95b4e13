#include "launch/study/study_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/small_file.h"
#include "launch/options/config_file.h"
#include "launch/options/nearest_name.h"
#include "launch/options/option_table.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, 5> kSettings = {"kind", "out", "launcher", "baseline",
                                                       "impossible"};
constexpr std::array<std::string_view, 2> kOwnAxes = {"ranks", "link"};

/// An option that may stand in a study: it is one of a point, and does not only say how to talk.
bool is_point_option(const OptionRow& row) {
  return takes(Verb::study_point, row) && row.group != "Program";
}

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names(kSettings.begin(), kSettings.end());
  names.insert(names.end(), kOwnAxes.begin(), kOwnAxes.end());
  for (const OptionRow& row : option_table()) {
    if (is_point_option(row)) names.push_back(row.name);
  }
  return names;
}

bool is_known_axis(std::string_view name) {
  if (std::ranges::find(kOwnAxes, name) != kOwnAxes.end()) return true;
  const OptionRow* row = find_option(name, Verb::study_point);
  return row != nullptr && is_point_option(*row);
}

/// The values of a list, each once.
StudyAxis read_axis(const ConfigEntry& entry, const std::string& where) {
  StudyAxis axis{.name = entry.name, .values = {}, .line = entry.line};
  for (const std::string& value : read_list(entry.value, where)) {
    require(!value.empty(), ErrorKind::usage, "{}: {} has an empty value", where, entry.name);
    require(std::ranges::find(axis.values, value) == axis.values.end(), ErrorKind::usage,
            "{}: {} has {} twice", where, entry.name, value);
    axis.values.push_back(value);
  }
  return axis;
}

std::int64_t read_count(const std::string& text, const std::string& where, std::string_view name) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  require(error == std::errc() && stop == end && value >= 1 && value <= kMostStudyRanks,
          ErrorKind::usage, "{}: {}: \"{}\" is not a number from 1 to {}", where, name, text,
          kMostStudyRanks);
  return value;
}

template <typename Choice>
void read_choice(const std::string& text, const std::string& where, std::string_view name,
                 Choice& choice) {
  const auto* const found = std::ranges::find(kChoices<Choice>, text, &NamedValue<Choice>::name);
  require(found != kChoices<Choice>.end(), ErrorKind::usage, "{}: {}: \"{}\" is not one of {}",
          where, name, text, fmt::join(kChoiceNames<Choice>, ", "));
  choice = found->value;
}

/// What stands for a value of the point in a command; others would reach the launcher as they are.
constexpr std::array<std::string_view, 4> kInCommands = {"{ranks}", "{ranks_per_node}", "{nodes}",
                                                         "{link}"};

void require_known_braces(std::string_view text, const std::string& where) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_-";
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    const std::size_t end = text.find_first_not_of(kLetters, at + 1);
    if (end == std::string_view::npos || text[end] != '}' || end == at + 1) continue;
    if (at > 0 && (text[at - 1] == '{' || text[at - 1] == '$')) continue;  // the launcher's own
    const std::string_view name = text.substr(at, end + 1 - at);
    require(std::ranges::find(kInCommands, name) != kInCommands.end(), ErrorKind::usage,
            "{}: launcher: {} stands for nothing; there are {}", where, name,
            fmt::join(kInCommands, ", "));
  }
}

/// A command has to be told how many ranks to start.
std::string read_launcher(const std::string& text, const std::string& where) {
  const bool is_known = text == "auto" || text == "mpirun" || text == "srun";
  require(is_known || text.find("{ranks}") != std::string::npos, ErrorKind::usage,
          "{}: launcher: \"{}\" is not auto, mpirun or srun, and has no {{ranks}}, where a command "
          "takes their number",
          where, text);
  require_known_braces(text, where);
  return text;
}

void read_entry(const ConfigEntry& entry, const std::string& where, StudyConfig& study) {
  const auto one_value = [&] { return read_value(entry.value, where); };
  if (entry.name == "kind") {
    read_choice(one_value(), where, entry.name, study.kind);
  } else if (entry.name == "out") {
    study.out = one_value();
    require(study.out != "~" && !study.out.starts_with("~/"), ErrorKind::usage,
            "{}: out: ~ is a name like any other here; write the whole path", where);
  } else if (entry.name == "launcher") {
    study.launcher = read_launcher(one_value(), where);
  } else if (entry.name == "baseline") {
    study.baseline = read_count(one_value(), where, entry.name);
  } else if (entry.name == "impossible") {
    read_choice(one_value(), where, entry.name, study.impossible);
  } else {
    require(is_known_axis(entry.name), ErrorKind::usage, "{}: \"{}\" is no option of a study{}",
            where, entry.name, did_you_mean(entry.name, known_names()));
    study.axes.push_back(read_axis(entry, where));
    if (entry.name != "ranks") return;
    for (const std::string& value : study.axes.back().values) {
      (void)read_count(value, where, entry.name);
    }
  }
}

/// What a file has to say, and what contradicts itself.
void check(const StudyConfig& study) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(study.axes, name, &StudyAxis::name) != study.axes.end();
  };
  require(!study.out.empty(), ErrorKind::usage,
          "{}: no out = DIR says where the results of the study go", study.path);
  require(has("ranks"), ErrorKind::usage, "{}: no ranks = 1,2,4 say how many ranks points have",
          study.path);
  require(has("model") != has("shape"), ErrorKind::usage,
          "{}: {}: one of them says what points run", study.path,
          has("model") ? "there are model = DIR and shape = NAME"
                       : "there is no model = DIR and no shape = NAME");
  require(study.kind != StudyKind::experts || has("shape"), ErrorKind::usage,
          "{}: kind = experts needs a shape = NAME: a model has the experts that it has",
          study.path);
  require(has("text") || has("shape"), ErrorKind::usage,
          "{}: no text = FILE says what points read; text = random takes random tokens, which "
          "choose other experts than texts do",
          study.path);
  const auto ranks = std::ranges::find(study.axes, "ranks", &StudyAxis::name);
  require(
      !study.baseline || std::ranges::count(ranks->values, fmt::format("{}", *study.baseline)) > 0,
      ErrorKind::usage, "{}: baseline = {}, but no point has so many ranks: ranks = {}", study.path,
      study.baseline.value_or(0), fmt::join(ranks->values, ","));
  const bool names_link = study.launcher.find("{link}") != std::string::npos;
  require(!names_link || has("link"), ErrorKind::usage,
          "{}: launcher has {{link}}, but there is no link = NAME", study.path);
}

}  // namespace

StudyConfig read_study(const std::string& path) {
  require(!path.empty(), ErrorKind::usage, "which study? CONFIG is missing");
  StudyConfig study{.path = path};
  std::set<std::string> seen;
  for (const ConfigEntry& entry : config_lines(read_file(path, kMaxConfigBytes), path)) {
    const std::string where = fmt::format("{} line {}", path, entry.line);
    require(seen.insert(entry.name).second, ErrorKind::usage, "{}: {} stands there twice", where,
            entry.name);
    read_entry(entry, where, study);
  }
  check(study);
  return study;
}

}  // namespace moesaic
