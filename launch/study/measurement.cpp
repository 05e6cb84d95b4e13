#include "launch/study/measurement.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "launch/bench/bench_table.h"
#include "launch/job/program_version.h"
#include "launch/job/runtime.h"
#include "launch/study/study_config.h"

namespace moesaic {
namespace {

/// Of all ranks; and cores.
constexpr std::int64_t kMostThreads = std::int64_t{1} << 30;
/// Of what else is counted, but bytes.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 40;
constexpr std::int64_t kMostBytesMoved = std::int64_t{1} << 62;

std::string phases_json(const Measurement& m) {
  JsonWriter out;
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    const auto& [mean, most] = m.phases[i];
    out.raw_field(kPhaseNames[i], JsonWriter().field("mean_s", mean).field("max_s", most).text());
  }
  return out.text();
}

std::string rows_json(const ExpertRows& rows) {
  std::string text;
  for (const std::vector<std::int64_t>& layer : rows) {
    text += fmt::format("{}[{}]", text.empty() ? "" : ",", fmt::join(layer, ","));
  }
  return "[" + text + "]";
}

/// A time or a share.
double not_negative(const Json& value) {
  const double number = value.as_double();
  require(number >= 0, ErrorKind::file, "{}: {} is below 0", value.where(), number);
  return number;
}

/// A time that is divided by.
double positive(const Json& value) {
  const double number = value.as_double();
  require(number > 0, ErrorKind::file, "{}: {} is not above 0", value.where(), number);
  return number;
}

/// Of so many experts in each of at most `layers` layers.
ExpertRows parse_rows(const Json& json, std::int64_t layers, std::int64_t experts) {
  ExpertRows rows;
  require(json.size() <= layers, ErrorKind::file, "{}: {} layers, expected {} at most",
          json.where(), json.size(), layers);
  json.for_each([&](const std::string&, const Json& layer) {
    require(layer.size() == experts, ErrorKind::file, "{}: rows of {} experts, expected {}",
            layer.where(), layer.size(), experts);
    std::vector<std::int64_t>& of_layer = rows.emplace_back();
    layer.for_each([&](const std::string&, const Json& number) {
      of_layer.push_back(number.as_int(0, kMostCounted));
    });
  });
  return rows;
}

std::vector<std::string> parse_strings(const Json& json) {
  std::vector<std::string> values;
  json.for_each([&](const std::string&, const Json& v) { values.push_back(v.as_string()); });
  return values;
}

Provenance parse_provenance(const Json& json) {
  Provenance result = parse_program(json);
  result.isa = json.at("isa").as_string();
  result.cpu = json.at("cpu").as_string();
  result.hosts = parse_strings(json.at("hosts"));
  result.cpusets = parse_strings(json.at("cpusets"));
  result.governor = json.at("governor").as_string();
  return result;
}

void parse_ranks(const Json& json, Measurement& m) {
  m.ranks = json.at("ranks").as_int(1, kMostStudyRanks);
  m.nodes = json.at("nodes").as_int(1, m.ranks);
  m.threads = json.at("threads").as_int(1, kMostThreads);
  m.cores = json.at("cores").as_int(1, kMostThreads);
  m.is_oversubscribed = json.at("oversubscribed").as_bool();
  const Json replicas = json.at("replicas");
  m.replicas = replicas.as_int(1, m.ranks);
  require(m.ranks % m.replicas == 0, ErrorKind::file, "{}: {} does not divide the {} ranks",
          replicas.where(), m.replicas, m.ranks);
}

void parse_work(const Json& json, Measurement& m) {
  m.experts = json.at("experts").as_int(1, kMostCounted);
  m.experts_per_token = json.at("experts_per_token").as_int(1, m.experts);
  m.layers = json.at("layers").as_int(1, kMostCounted);
  m.hidden = json.at("hidden").as_int(1, kMostCounted);
  if (const auto format = json.find("expert_format")) m.expert_format = format->as_string();
  m.sequences = json.at("sequences").as_int(1, kMostCounted);
  m.tokens = json.at("tokens").as_int(1, kMostCounted);
  m.routing = json.at("routing").as_string();
  m.transport = json.at("transport").as_string();
}

/// All of kPhaseNames and no other.
void parse_phases(const Json& json, Measurement& m) {
  json.for_each([&](const std::string& name, const Json& phase) {
    require(std::ranges::find(kPhaseNames, name) != kPhaseNames.end(), ErrorKind::file,
            "{}: there is no phase \"{}\"", phase.where(), name);
  });
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    const Json phase = json.at(kPhaseNames[i]);
    m.phases[i] = {.mean = not_negative(phase.at("mean_s")),
                   .most = not_negative(phase.at("max_s"))};
  }
}

void parse_times(const Json& json, Measurement& m) {
  const Json samples = json.at("samples_s");
  require(samples.size() > 0, ErrorKind::file, "{}: expected a time of each repetition, found none",
          samples.where());
  samples.for_each(
      [&](const std::string&, const Json& value) { m.samples.push_back(positive(value)); });
  m.seconds = positive(json.at("seconds"));
  // One sample had an interval of 0 once.
  if (m.samples.size() > 1) m.ci95 = not_negative(json.at("ci95_s"));
  m.cpu_seconds = not_negative(json.at("cpu_seconds"));
  m.disturbed = json.at("disturbed").as_int(0, kMostCounted);
  parse_phases(json.at("phases"), m);
  m.late_seconds = not_negative(json.at("late_s"));
  m.transfer_seconds = not_negative(json.at("transfer_s"));
  m.exposed_share = not_negative(json.at("exposed_share"));
  m.load_seconds = not_negative(json.at("load_seconds"));
  if (const auto share = json.find("roof_share")) m.roof_share = not_negative(*share);
}

void parse_amounts(const Json& json, Measurement& m) {
  m.rows_max_over_mean = not_negative(json.at("rows_max_over_mean"));
  m.intra_bytes = json.at("intra_bytes").as_int(0, kMostBytesMoved);
  m.inter_bytes = json.at("inter_bytes").as_int(0, kMostBytesMoved);
  m.messages = json.at("messages").as_int(0, kMostCounted);
  m.node_peak_bytes = json.at("node_peak_bytes").as_int(0, kMostBytesMoved);
  m.node_planned_bytes = json.at("node_planned_bytes").as_int(0, kMostBytesMoved);
  if (const auto rows = json.find("expert_rows"))
    m.expert_rows = parse_rows(*rows, m.layers, m.experts);
}

}  // namespace

std::string optional_json(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "null";
}

void add_measurement(const Measurement& m, JsonWriter& out) {
  out.field("ranks", m.ranks)
      .field("nodes", m.nodes)
      .field("threads", m.threads)
      .field("cores", m.cores)
      .field("oversubscribed", m.is_oversubscribed)
      .field("experts", m.experts)
      .field("experts_per_token", m.experts_per_token)
      .field("layers", m.layers)
      .field("hidden", m.hidden)
      .raw_field("expert_format", m.expert_format.empty() ? "null" : json_quote(m.expert_format))
      .field("replicas", m.replicas)
      .field("sequences", m.sequences)
      .field("tokens", m.tokens)
      .field("routing", m.routing)
      .field("transport", m.transport)
      .raw_field("samples_s", fmt::format("[{}]", fmt::join(m.samples, ",")))
      .field("seconds", m.seconds)
      .raw_field("ci95_s", optional_json(m.ci95))
      .field("tokens_per_second", m.tokens_per_second())
      .field("cpu_seconds", m.cpu_seconds)
      .raw_field("phases", phases_json(m))
      .field("late_s", m.late_seconds)
      .field("transfer_s", m.transfer_seconds)
      .field("exposed_share", m.exposed_share)
      .field("rows_max_over_mean", m.rows_max_over_mean)
      .field("intra_bytes", m.intra_bytes)
      .field("inter_bytes", m.inter_bytes)
      .field("messages", m.messages)
      .field("node_peak_bytes", m.node_peak_bytes)
      .field("node_planned_bytes", m.node_planned_bytes)
      .field("load_seconds", m.load_seconds);
  out.raw_field("roof_share", optional_json(m.roof_share)).field("disturbed", m.disturbed);
}

void add_program(const Provenance& from, JsonWriter& out) {
  out.field("version", from.version)
      .field("commit", from.commit)
      .field("dirty", from.is_dirty)
      .field("compiler", from.compiler)
      .field("mpi", from.mpi);
}

Provenance parse_program(const Json& json) {
  Provenance program;
  program.version = json.at("version").as_string();
  program.commit = json.at("commit").as_string();
  program.is_dirty = json.at("dirty").as_bool();
  program.compiler = json.at("compiler").as_string();
  program.mpi = json.at("mpi").as_string();
  return program;
}

Provenance this_program() {
  const ProgramVersion version = program_version();
  Provenance program;
  program.version = version.number;
  program.commit = version.commit;
  program.is_dirty = version.is_dirty;
  program.compiler = version.compiler;
  program.mpi = mpi_library_version();
  return program;
}

void add_provenance(const Provenance& from, JsonWriter& out) {
  add_program(from, out);
  out.field("isa", from.isa)
      .field("cpu", from.cpu)
      .raw_field("hosts", json_strings(from.hosts))
      .raw_field("cpusets", json_strings(from.cpusets))
      .field("governor", from.governor);
}

std::string measurement_json(const Measurement& m) {
  JsonWriter out;
  add_measurement(m, out);
  JsonWriter provenance;
  add_provenance(m.provenance, provenance);
  return out.raw_field("expert_rows", rows_json(m.expert_rows))
      .raw_field("provenance", provenance.text())
      .text();
}

Measurement parse_measurement(const Json& json) {
  Measurement m;
  parse_ranks(json, m);
  parse_work(json, m);
  parse_times(json, m);
  parse_amounts(json, m);
  m.provenance = parse_provenance(json.at("provenance"));
  return m;
}

MeanInterval mean_interval(const std::vector<double>& samples) {
  // Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom; then Cornish and Fisher's
  // expansion about the normal value.
  constexpr std::array kT = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                             2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  const MeanDeviation samples_are = mean_deviation(samples);
  if (samples.size() < 2) return {.mean = samples_are.mean};
  const std::size_t freedom = samples.size() - 1;
  const double f = static_cast<double>(freedom);
  const double t = freedom <= kT.size() ? kT[freedom - 1] : 1.960 + 2.372 / f + 2.823 / (f * f);
  return {.mean = samples_are.mean,
          .half_width = t * samples_are.deviation / std::sqrt(static_cast<double>(samples.size()))};
}

}  // namespace moesaic
