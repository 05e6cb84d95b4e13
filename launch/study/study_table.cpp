#include "launch/study/study_table.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/rounding.h"

namespace moesaic {
namespace {

/// Whether a study of this kind sets an option by the number of ranks: so many times what its file
/// says.
bool grows_with_ranks(std::string_view kind, std::string_view option) {
  if (option == "sequences") return kind != "strong";
  return option == "experts" && kind == "experts";
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// What has to be alike in points that are compared.
std::string group_of(const PointRecord& record) {
  std::string key = record.link;
  for (const auto& [name, value] : compared_options(record)) {
    key += fmt::format("\n{}={}", name, value);
  }
  return key;
}

double per_core(const Measurement& m) {
  return m.tokens_per_second() / static_cast<double>(m.cores);
}

using Baselines = std::map<std::string, const Measurement*>;

Baselines find_baselines(const std::vector<PointRecord>& records,
                         std::optional<std::int64_t> ranks) {
  Baselines found;
  for (const PointRecord& record : records) {
    if (!record.measurement || (ranks && record.measurement->ranks != *ranks)) continue;
    const Measurement*& best = found[group_of(record)];
    if (best == nullptr || record.measurement->ranks < best->ranks) best = &*record.measurement;
  }
  return found;
}

void compare(const Measurement& base, StudyRow& row) {
  const Measurement& own = *row.record.measurement;
  row.core_efficiency = per_core(own) / per_core(base);
  if (own.is_oversubscribed || base.is_oversubscribed) return;
  row.speedup = own.tokens_per_second() / base.tokens_per_second();
  row.efficiency = *row.speedup * static_cast<double>(base.ranks) / static_cast<double>(own.ranks);
}

std::string provenance_json(const PointRecord& record) {
  const PointLaunch& launch = record.launch;
  JsonWriter out;
  if (record.measurement) {
    add_provenance(record.measurement->provenance, out);
  } else if (launch.program) {
    add_program(*launch.program, out);
  }
  return out.field("job_id", launch.job_id)
      .field("array_id", launch.array_id)
      .raw_field("argv", json_strings(launch.argv))
      .raw_field("options", options_json(record.options))
      .field("start", launch.start)
      .field("end", launch.end)
      .text();
}

/// A number that an option of the point tells; nothing where it leaves that to the ranks.
std::optional<std::int64_t> told(const PointRecord& record, const std::string& option) {
  const auto found = record.options.find(option);
  if (found == record.options.end()) return std::nullopt;
  const std::optional<std::int64_t> value = whole_number(found->second);
  return value && *value > 0 ? value : std::nullopt;
}

/// What is known of a point that nobody measured.
void add_asked_for(const PointRecord& record, JsonWriter& out) {
  out.field("ranks", record.ranks);
  if (const auto per_node = told(record, "ranks-per-node")) {
    out.field("nodes", divide_up(record.ranks, *per_node));
  }
  if (const auto threads = told(record, "threads")) out.field("threads", record.ranks * *threads);
  if (const auto replicas = told(record, "expert-replicas")) out.field("replicas", *replicas);
  if (const auto sequences = told(record, "sequences")) out.field("sequences", *sequences);
}

std::string study_line(const StudyRow& row) {
  const PointRecord& record = row.record;
  JsonWriter out;
  out.field("point", record.id)
      .field("kind", record.kind)
      .field("job", record.job)
      .field("link", record.link);
  if (record.measurement) {
    add_measurement(*record.measurement, out);
  } else {
    add_asked_for(record, out);
  }
  return out.raw_field("speedup", optional_json(row.speedup))
      .raw_field("efficiency", optional_json(row.efficiency))
      .raw_field("core_efficiency", optional_json(row.core_efficiency))
      .field("status", record.status())
      .raw_field("error", record.error ? error_json(*record.error) : "null")
      .raw_field("skipped", record.skipped.empty() ? "null" : json_quote(record.skipped))
      .raw_field("provenance", provenance_json(record))
      .text();
}

}  // namespace

std::map<std::string, std::string> compared_options(const PointRecord& record) {
  std::map<std::string, std::string> options = record.options;
  for (auto& [name, value] : options) {
    if (!grows_with_ranks(record.kind, name)) continue;
    if (const auto all = whole_number(value)) value = fmt::format("{}", *all / record.ranks);
  }
  return options;
}

std::vector<StudyRow> compare_points(std::vector<PointRecord> records,
                                     std::optional<std::int64_t> baseline) {
  const Baselines baselines = find_baselines(records, baseline);
  std::vector<StudyRow> rows;
  for (const PointRecord& record : records) {
    StudyRow& row = rows.emplace_back(StudyRow{.record = record});
    const auto found = baselines.find(group_of(record));
    if (record.measurement && found != baselines.end()) compare(*found->second, row);
  }
  return rows;
}

std::string study_jsonl(const std::vector<StudyRow>& rows) {
  std::string text;
  for (const StudyRow& row : rows) text += study_line(row) + "\n";
  return text;
}

}  // namespace moesaic
