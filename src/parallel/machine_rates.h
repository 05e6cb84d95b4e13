#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/format.h"

namespace moesaic {

/// Time of products with cold weights of one format, by the number of rows.
struct ProductCurve {
  std::vector<double> rows;                // ascending, from 1 on
  std::vector<double> seconds_per_weight;  // of a product of so many rows: one output x one input

  /// Between measured numbers of rows linear in rows; beyond the last at its rate.
  [[nodiscard]] double seconds(double rows, double weights) const;
};

/// What moves rows between ranks.
struct LinkRates {
  double latency_seconds = 0;             // of one message
  double one_rank_bytes_per_second = 0;   // one rank of a node sends
  double all_ranks_bytes_per_second = 0;  // all do: their sum
};

/// What one node does with all its threads, as `moesaic doctor --measure FILE` measured it.
struct MachineRates {
  std::string path;      // of the file it was read from
  std::string measured;  // when and where
  std::string cpu;
  std::string isa;
  int cores = 1;  // that were measured, all at work
  std::map<Format, ProductCurve> products;
  double attention_flops_per_second = 0;  // of many rows
  double read_bytes_per_second = 0;       // of memory
  double row_bytes_per_second = 0;        // of rows between products
  double job_seconds = 0;                 // to hand a job to all threads and to have it done
  double barrier_seconds = 0;             // of all ranks that measured
  std::optional<LinkRates> inside;        // a node
  std::optional<LinkRates> between;       // nodes
  std::int64_t rank_bytes = 0;            // memory of a rank without a model
  std::int64_t node_bytes = 0;            // memory that all ranks of a node share without a model

  /// JSON, one line. Inverse of read_machine_rates.
  [[nodiscard]] std::string text() const;
};

/// Throws Error{file} naming file and field for what such a file cannot hold.
[[nodiscard]] MachineRates read_machine_rates(const std::string& path);

}  // namespace moesaic
