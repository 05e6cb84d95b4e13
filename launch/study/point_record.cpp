#include "launch/study/point_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/split.h"
#include "launch/job/agreement.h"
#include "launch/options/option_table.h"

namespace moesaic {
std::string options_json(const std::map<std::string, std::string>& options) {
  JsonWriter out;
  for (const auto& [name, value] : options) out.field(name, value);
  return out.text();
}

namespace {

PointRecord parse_record(const Json& json) {
  PointRecord record{.id = json.at("point").as_string(),
                     .kind = json.at("kind").as_string(),
                     .job = json.at("job").as_string(),
                     .link = json.at("link").as_string(),
                     .ranks = json.at("ranks").as_int(1, kMostStudyRanks)};
  json.at("options").for_each([&](const std::string& name, const Json& value) {
    record.options[name] = value.as_string();
  });
  const Json launch = json.at("launch");
  launch.at("argv").for_each([&](const std::string&, const Json& word) {
    record.launch.argv.push_back(word.as_string());
  });
  record.launch.start = launch.at("start").as_string();
  record.launch.end = launch.at("end").as_string();
  record.launch.job_id = launch.at("job_id").as_string();
  record.launch.array_id = launch.at("array_id").as_string();
  if (const auto program = launch.find("program")) record.launch.program = parse_program(*program);
  if (const auto error = json.find("error")) {
    const auto times = error->find("times");
    record.error = PointError{.exit_code = static_cast<int>(error->at("exit_code").as_int(1, 255)),
                              .last_words = error->at("last_words").as_string(),
                              .times = times ? times->as_int() : 1};
  } else if (const auto skipped = json.find("skipped")) {
    record.skipped = skipped->as_string();
  } else {
    record.measurement = parse_measurement(json.at("measurement"));
  }
  return record;
}

bool is_rule(std::string_view line) {
  return line.find_first_not_of("-= \t\r") == std::string_view::npos;
}

}  // namespace

bool PointError::may_pass() const {
  constexpr std::int64_t kMostTimes = 3;
  const bool is_lost =
      exit_code == moesaic::exit_code(ErrorKind::peer) || exit_code == 128 + SIGKILL;
  return is_lost && times < kMostTimes;
}

std::string_view PointRecord::status() const noexcept {
  if (!skipped.empty()) return "skipped";
  return error ? "failed" : "measured";
}

std::string error_json(const PointError& error) {
  return JsonWriter()
      .field("exit_code", error.exit_code)
      .field("last_words", error.last_words)
      .field("times", error.times)
      .text();
}

namespace {

std::string launch_json(const PointLaunch& launch) {
  JsonWriter out;
  out.raw_field("argv", json_strings(launch.argv))
      .field("start", launch.start)
      .field("end", launch.end)
      .field("job_id", launch.job_id)
      .field("array_id", launch.array_id);
  if (launch.program) {
    JsonWriter program;
    add_program(*launch.program, program);
    out.raw_field("program", program.text());
  }
  return out.text();
}

}  // namespace

std::string point_record_json(const PointRecord& record) {
  JsonWriter out;
  out.field("point", record.id)
      .field("kind", record.kind)
      .field("job", record.job)
      .field("link", record.link)
      .field("ranks", record.ranks)
      .raw_field("options", options_json(record.options))
      .raw_field("launch", launch_json(record.launch));
  if (record.measurement) out.raw_field("measurement", measurement_json(*record.measurement));
  if (record.error) out.raw_field("error", error_json(*record.error));
  if (!record.skipped.empty()) out.field("skipped", record.skipped);
  return out.text();
}

PointRecord read_point_record(const std::string& path) {
  try {
    return parse_record(Json::read_file(path));
  } catch (const Error& error) {
    fail(ErrorKind::file, "{}; take the file away, and study run measures the point again",
         error.what());
  }
}

PointRecord new_point_record(const StudyConfig& study, const StudyPoint& point) {
  PointRecord record{
      .id = point.id,
      .kind = std::string(choice_name(study.kind)),
      .job = value_text(*find_option("job", Verb::study_point), point.command.options),
      .link = point.link,
      .ranks = point.ranks};
  for (const OptionRow& row : option_table()) {
    const bool counts = takes(Verb::study_point, row) && row.group != "Program";
    if (counts) record.options[std::string(row.name)] = value_text(row, point.command.options);
  }
  return record;
}

std::string last_words(std::string_view errors) {
  constexpr std::size_t kMostBytes = 600;
  std::vector<std::string_view> lines;
  for (const std::string_view line : split(errors, '\n')) {
    if (!is_rule(line)) lines.push_back(line);
  }
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (line->find("error: ") == std::string_view::npos) continue;
    return std::string(line->substr(0, kMostBytes));
  }
  for (const std::string_view line : lines)
    text += fmt::format("{}{}", text.empty() ? "" : " ", line);
  return text.size() > kMostBytes ? text.substr(text.size() - kMostBytes) : text;
}

}  // namespace moesaic
