#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_blocks.h"
#include "kernels/attention_gradient.h"
#include "kernels/cpu_features.h"

namespace moesaic {

/// Query rows that share one pass over keys and values; with tiles more do (kRowsPerSegment).
inline constexpr std::int64_t kAttentionRows = 64;
/// Rows of a call whose passes meet a segment one after the other, while it is in the L2 cache:
/// calls of fewer rows read keys and values from memory more often.
inline constexpr std::int64_t kRowsPerSegment = 4 * kAttentionRows;

/// A row's keys are cut into segments of this many positions, counted from position 0. Each has a
/// softmax of its own; they are merged in ascending order (docs/numerics.md). So they can be
/// computed anywhere, at any time.
inline constexpr std::int64_t kKeysPerSegment = 1024;

/// Attention of some query rows over the keys of one KV head.
struct AttentionArgs {
  const float* queries = nullptr;  // [num_rows, head_dim], rows query_stride apart
  std::int64_t query_stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t head_dim = 0;   // any even number
  std::int64_t value_dim = 0;  // any even number
  /// Row i sees keys [first_keys[i], end_keys[i]), at least one; positions from 0. With `states`
  /// all within one segment, and a row may see none.
  const std::int64_t* first_keys = nullptr;
  const std::int64_t* end_keys = nullptr;
  /// Where the block of positions [64 b, 64 b + 64) starts, in the form of attention_blocks.h:
  /// [ceil(greatest end / 64)], of which those are used that some row sees.
  const std::byte* const* key_blocks = nullptr;
  const std::byte* const* value_blocks = nullptr;
  float scale = 1;  // multiplies the scores, > 0
  /// [num_rows]: a further score of each row, not scaled, that takes its share of the softmax and
  /// has no value; or null.
  const float* sinks = nullptr;
  std::byte* scratch = nullptr;  // attention_scratch_bytes(), 64-byte aligned
  float* out = nullptr;          // [num_rows, value_dim], rows out_stride apart
  std::int64_t out_stride = 0;
  /// [num_rows]: log of the sum of exp over a row's scores and its sink; or null.
  float* log_sum_exps = nullptr;
  /// If not null, what the segment has come to is written here, for merge(), and not to `out`:
  /// [num_rows, attention_state_floats(value_dim)], 64-byte aligned. Sinks join in merge().
  float* states = nullptr;
};

/// The results of some rows from what their segments have come to.
struct AttentionMerge {
  /// [num_rows, attention_state_floats(value_dim)] of the first segment; overwritten.
  float* states = nullptr;
  std::int64_t num_segments = 0;    // at least 1; a row sees a key in at least one of them
  std::int64_t segment_stride = 0;  // floats from a segment's states to those of the next
  std::int64_t num_rows = 0;
  std::int64_t value_dim = 0;
  const float* sinks = nullptr;  // as in AttentionArgs
  float* out = nullptr;          // [num_rows, value_dim], rows out_stride apart
  std::int64_t out_stride = 0;
  float* log_sum_exps = nullptr;  // as in AttentionArgs
};

/// softmax(scale * q k^T) v for each row, on one instruction set and one kind of cache. Constant
/// data; one definition a file kernels/cpu/<isa>/attention_<kind>.cpp, listed by the build.
///
/// A row's bits depend on that row, its range, its sink and the keys and values it sees: the same
/// alone and among others, whatever stands where it does not look.
struct AttentionKernel {
  Isa isa;
  AttentionKind kind;
  const char* name;  // "avx512/bf16"
  void (*attend)(const AttentionArgs& args) noexcept;
  /// The same bits as a call of attend() for all segments.
  void (*merge)(const AttentionMerge& merge) noexcept;
  /// Gradients of queries, keys and values.
  void (*differentiate)(const AttentionGradientArgs& args) noexcept;
};

/// Floats of a row's state: a multiple of 16.
[[nodiscard]] std::int64_t attention_state_floats(std::int64_t value_dim) noexcept;
/// Bytes of AttentionArgs::scratch; its contents mean nothing between calls.
[[nodiscard]] std::int64_t attention_scratch_bytes(std::int64_t head_dim,
                                                   std::int64_t value_dim) noexcept;

}  // namespace moesaic
