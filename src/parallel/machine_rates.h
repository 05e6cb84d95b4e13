#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/format.h"

namespace moesaic {

/// A rate that was measured at some sizes.
struct RateCurve {
  std::vector<double> sizes;  // ascending
  std::vector<double> values;

  /// Between measured sizes linear in the size, beyond them as at the nearest.
  [[nodiscard]] double at(double size) const;
};

/// Time of products with weights of one format: of `rows` rows with n outputs and k inputs, all of
///   n k weight_seconds(rows) + n column + rows k pack + rows n result.
struct ProductCurve {
  std::vector<double> rows;                // ascending, from 1 on
  std::vector<double> seconds_per_weight;  // read from memory: one output x one input
  /// The same with weights from the nearest cache that holds them, of fewer numbers of rows.
  RateCurve cached_seconds_per_weight{};
  double column_seconds = 0;           // an output, however many rows have it
  double pack_f32_seconds = 0;         // a number of a row of f32 becomes what the kernel takes
  double pack_bf16_seconds = 0;        // the same of bf16
  double result_seconds = 0;           // a number of a result, written where caches hold it
  double streamed_result_seconds = 0;  // the same past the caches

  /// Of a product with as many weights. Between measured numbers of rows linear in rows; beyond the
  /// last at its rate. `coldness`: 1 if weights are read from memory, 0 if they are in a cache.
  [[nodiscard]] double seconds(double rows, double weights, double coldness = 1) const;
};

/// What is done with rows between products.
enum class RowOp : std::size_t {
  norm,       ///< RMSNorm of whole rows
  head_norm,  ///< RMSNorm of heads
  add,        ///< a scaled row is added to another
  look,       ///< are all numbers finite
  angle,      ///< sine and cosine of a position
  rotate,     ///< by them
  store,      ///< into the cache of keys and values
  copy,       ///< heads go to and from attention
  attend,     ///< queries and results of attention, whatever the keys are
  round,      ///< to bf16
  sum,        ///< results of experts are weighted and added; a number of a result
  gate,       ///< inner activations, where they are made
  sample      ///< a logit is looked at
};
inline constexpr std::size_t kNumRowOps = 13;
inline constexpr std::array<std::string_view, kNumRowOps> kRowOpNames = {
    "norm", "head_norm", "add",   "look", "angle", "rotate", "store",
    "copy", "attend",    "round", "sum",  "gate",  "sample"};
/// Bytes that it reads and writes for a number.
inline constexpr std::array<double, kNumRowOps> kRowOpBytes = {8, 8, 12, 4, 4, 8, 6,
                                                               8, 8, 6,  4, 8, 4};

/// What choosing experts takes besides the router's product.
struct RoutingRates {
  double score_seconds = 0;   // a score of a token is looked at
  double choice_seconds = 0;  // a token's choice
  double plan_seconds = 0;    // a choice is planned for, by one thread of its rank
};

/// What products take besides what is above, of a rank, whatever its threads.
struct CallRates {
  double job_seconds = 0;      // to hand a job to all threads and to have it done
  double product_seconds = 0;  // a call for products
  double group_seconds = 0;    // each expert that it has rows of
};

/// What moves rows between ranks.
struct LinkRates {
  double latency_seconds = 0;             // of one message
  double one_rank_bytes_per_second = 0;   // one rank of a node sends
  double all_ranks_bytes_per_second = 0;  // all do: their sum
};

/// What the GPU of a rank does at most, where all that are there are at work.
struct GpuRates {
  std::string name;                  // "NVIDIA H100 80GB HBM3, sm_90"
  double read_bytes_per_second = 0;  // of its memory
  /// By the kernels that multiply: kernels_name().
  std::map<std::string, double, std::less<>> flops_per_second{};
  double upload_bytes_per_second = 0;  // copies of page-locked memory
  double download_bytes_per_second = 0;
  double call_seconds = 0;  // a kernel behind others
  double wait_seconds = 0;  // what the first and only one takes longer, until the host knows
};

/// What one node does with all its threads, as `moesaic doctor --measure FILE` measured it.
struct MachineRates {
  std::string path;      // of the file it was read from
  std::string measured;  // when and where
  std::string cpu;
  std::string isa;
  int cores = 1;  // that were measured, all at work
  std::map<Format, ProductCurve> products;
  RateCurve attention_flops_per_second{};  // of many rows, by the width of a head
  RateCurve read_bytes_per_second{};       // by the bytes that a rank reads again and again
  /// Seconds a number, by the numbers of a call.
  std::array<RateCurve, kNumRowOps> row_ops{};
  RoutingRates routing{};
  CallRates calls{};
  double barrier_seconds = 0;        // of all ranks that measured
  std::optional<LinkRates> inside;   // a node
  std::optional<LinkRates> between;  // nodes
  std::optional<GpuRates> gpu;       // none: where it was measured, there was none
  std::int64_t rank_bytes = 0;       // memory of a rank without a model
  std::int64_t node_bytes = 0;       // memory that all ranks of a node share without a model

  [[nodiscard]] const RateCurve& of(RowOp op) const {
    return row_ops[static_cast<std::size_t>(op)];
  }
  /// Reads of memory.
  [[nodiscard]] double memory_bytes_per_second() const {
    return read_bytes_per_second.values.back();
  }
  /// 1 where as many bytes are read from memory again and again, 0 where a core's cache holds them,
  /// between them by how fast they are read.
  [[nodiscard]] double coldness(double bytes) const;

  /// JSON, one line. Inverse of read_machine_rates.
  [[nodiscard]] std::string text() const;
};

/// Throws Error{file} naming file and field for what such a file cannot hold.
[[nodiscard]] MachineRates read_machine_rates(const std::string& path);

}  // namespace moesaic
