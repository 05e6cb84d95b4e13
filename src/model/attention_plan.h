#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/attention_kernel.h"

namespace moesaic {

/// Query rows of one task at most: they share every load of keys and values from memory.
inline constexpr std::int64_t kAttentionTaskRows = kRowsPerSegment;

/// What of a layer's attention decides how it is cut.
struct AttentionShape {
  std::int64_t kv_heads = 0;
  std::int64_t group = 0;      // query heads of a KV head
  std::int64_t value_dim = 0;  // of a head
  std::int64_t window = 0;     // keys a token sees at most; 0: all before it
};

/// New tokens of a sequence: positions [position, position + num_tokens).
struct AttentionSpan {
  std::int64_t position = 0;
  std::int64_t num_tokens = 0;
};

/// Tokens [first, first + count) of a sequence and the query heads of one KV head: count * group
/// rows.
struct AttentionRows {
  std::size_t sequence = 0;  // of those that are cut
  std::int64_t kv_head = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Some rows over all their keys, or over those of one segment of kKeysPerSegment.
struct AttentionTask {
  static constexpr std::int64_t kAllSegments = -1;

  AttentionRows rows;
  std::int64_t segment = kAllSegments;
  std::int64_t states = 0;  // of one segment: where its states start, in floats

  [[nodiscard]] bool is_whole() const { return segment == kAllSegments; }
  /// Keys [first_key(), end_key()) at most.
  [[nodiscard]] std::int64_t first_key() const {
    return is_whole() ? 0 : segment * kKeysPerSegment;
  }
  [[nodiscard]] std::int64_t end_key() const {
    return is_whole() ? std::numeric_limits<std::int64_t>::max() : first_key() + kKeysPerSegment;
  }
};

/// The segments of some rows, merged when all tasks are done.
struct AttentionJoin {
  AttentionRows rows;
  std::int64_t num_segments = 0;
  std::int64_t segment_stride = 0;  // floats from a segment's states to those of the next
  std::int64_t states = 0;          // of the first, in floats
};

/// How one layer's attention of some sequences is shared out over threads: by rows and KV heads
/// and, where these are too few for the threads, by segments of keys. Bits do not depend on it.
class AttentionPlan {
 public:
  void cut(std::span<const AttentionSpan> sequences, const AttentionShape& shape, int threads);

  [[nodiscard]] std::span<const AttentionTask> tasks() const { return tasks_; }
  [[nodiscard]] std::span<const AttentionJoin> joins() const { return joins_; }
  /// Floats of all states together.
  [[nodiscard]] std::int64_t state_floats() const { return state_floats_; }
  /// What state_floats() never exceeds for sequences of up to `positions` with `tokens` new ones
  /// together.
  [[nodiscard]] static std::int64_t most_state_floats(const AttentionShape& shape,
                                                      std::int64_t tokens, std::int64_t positions,
                                                      int threads);

 private:
  void cut_segments(std::span<const AttentionSpan> sequences, const AttentionShape& shape);

  std::vector<AttentionTask> tasks_;
  std::vector<AttentionTask> whole_tasks_;
  std::vector<AttentionJoin> joins_;
  std::int64_t state_floats_ = 0;
};

}  // namespace moesaic
