#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "src/parallel/expert_record.h"
#include "src/parallel/phase_times.h"

namespace moesaic {

/// Seconds of one phase in one repetition: the mean over the ranks, and of the rank with the most.
struct PhaseMeasurement {
  double mean = 0;
  double most = 0;
};

/// With what was measured; isa and all below are known of what was measured alone.
struct Provenance {
  std::string version{};
  std::string commit{};
  bool is_dirty = false;
  std::string compiler{};
  std::string mpi{};
  std::string isa{};
  std::string cpu{};
  std::vector<std::string> hosts{};    // of each rank
  std::vector<std::string> cpusets{};  // of each rank
  std::string governor{};              // of rank 0's first core; empty: not told
};

/// What the ranks of a point measured; all of it is the sum, or the most, of all ranks, of one
/// repetition where nothing else is said.
struct Measurement {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::int64_t threads = 1;  // of all ranks
  std::int64_t cores = 1;    // that these threads have
  bool is_oversubscribed = false;

  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::string expert_format{};  // empty: no experts compute
  std::int64_t replicas = 1;

  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  std::string routing{};  // routing_text(), or of a shape the option's value
  std::string transport{};

  std::vector<double> samples{};  // seconds of each repetition
  double seconds = 0;             // their mean
  std::optional<double> ci95{};   // of the mean, this much to both sides; none of one sample
  double cpu_seconds = 0;
  std::int64_t disturbed = 0;                         // repetitions that were thrown away
  std::array<PhaseMeasurement, kNumPhases> phases{};  // as kPhaseNames

  // Of runs with a barrier before each exchange; means over the ranks.
  double late_seconds = 0;      // waiting for slower ranks
  double transfer_seconds = 0;  // moving rows
  double exposed_share = 0;     // of the timed repetitions' time, in exchanges

  double rows_max_over_mean = 1;        // of the ranks' experts
  ExpertRows expert_rows{};             // how often tokens chose each expert
  std::int64_t intra_bytes = 0;         // of rows, to ranks of the same node
  std::int64_t inter_bytes = 0;         // of messages, to other nodes
  std::int64_t messages = 0;            // to other nodes
  std::int64_t node_peak_bytes = 0;     // of the node with the most
  std::int64_t node_planned_bytes = 0;  // what was planned for the node with the most
  double load_seconds = 0;
  std::optional<double> roof_share{};
  Provenance provenance{};

  [[nodiscard]] double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

/// A number of JSON, or null.
[[nodiscard]] std::string optional_json(const std::optional<double>& value);
/// Members of a JSON object, without the rows of each expert and the provenance.
void add_measurement(const Measurement& measurement, JsonWriter& out);
void add_provenance(const Provenance& provenance, JsonWriter& out);
/// The program alone: version, commit, compiler, MPI.
void add_program(const Provenance& provenance, JsonWriter& out);
/// Inverse.
[[nodiscard]] Provenance parse_program(const Json& json);
/// Of this process.
[[nodiscard]] Provenance this_program();
/// All of it, one line of JSON.
[[nodiscard]] std::string measurement_json(const Measurement& measurement);
/// Inverse. Throws Error{file} naming the field that is missing or not what it should be: counts of
/// nothing, experts or replicas that ranks cannot have, other phases than kPhaseNames, no sample.
[[nodiscard]] Measurement parse_measurement(const Json& json);

/// Mean of the samples, and the half width of its 95 % interval by Student's t; one sample has
/// none.
struct MeanInterval {
  double mean = 0;
  std::optional<double> half_width{};
};
[[nodiscard]] MeanInterval mean_interval(const std::vector<double>& samples);

}  // namespace moesaic
