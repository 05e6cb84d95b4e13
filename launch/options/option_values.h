#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cpu_features.h"

namespace moesaic {

/// Values of options that no other room has a type for. Their names stand in
/// launch/options/choices.h.

enum class Numerics { native, portable };
/// Where the scales of activations in nvfp4 come from.
enum class ActivationScales {
  runtime,    ///< each token has its own
  checkpoint  ///< found when the checkpoint was made; one for all experts of a layer
};
enum class Transport { automatic, mpi, shm, nccl };
enum class RoutingChoice { both, even, skewed, hot_rank };
/// What `bench kernels --op` measures, for a matrix W [n, k].
enum class ProductOp {
  forward,            ///< y [rows, n] = x [rows, k] W^T
  transposed,         ///< x [rows, k] = y [rows, n] W: the gradient of an input
  outer,              ///< W [n, k] = y [rows, n]^T x [rows, k]: the gradient of a matrix
  attention,          ///< no matrix: rows over a cache of keys and values
  attention_backward  ///< the gradients of queries, keys and values of whole samples
};
enum class Rival { none, onednn };
/// Where `bench kernels` multiplies.
enum class Processor { cpu, gpu };
/// Whether GPUs plan small batches themselves, each launched as one graph.
enum class GpuGraph { off, on };
/// What multiplies on a GPU's tensor cores, where numerics are native.
enum class GpuKernel {
  mma,     ///< our own kernels
  cutlass  ///< the library of grouped products, where rows and weights are in nvfp4
};
enum class ResultForm { md, csv, json, jsonl };

/// Of one test of `bench model`: a million is more than any model was made for.
inline constexpr std::int64_t kMostBenchTokens = std::int64_t{1} << 20;

/// What --isa asks for: one, all in turn, or else the best that there is.
struct IsaChoice {
  std::optional<Isa> isa{};
  bool all = false;
};

/// A number of bytes as a user writes it.
struct ByteCount {
  std::int64_t bytes = 0;
  std::string text{};
};

/// A length of time as a user writes it.
struct TimeSpan {
  std::int64_t milliseconds = 0;
  std::string text{};
};

/// "50m", "1h30m", "2d", "90s", "90": seconds, minutes, hours and days, added. Throws Error{usage}
/// that starts with `where`.
[[nodiscard]] TimeSpan parse_time_span(std::string_view text, std::string_view where);

/// "12G", "1.5 GiB", "800M", "4096": bytes, units of 1024, at least one where there is no unit.
/// Throws Error{usage} that starts with `where`.
[[nodiscard]] ByteCount parse_bytes(std::string_view text, std::string_view where);

}  // namespace moesaic
