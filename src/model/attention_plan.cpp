#include "src/model/attention_plan.h"
#include "base/rounding.h"

#include <algorithm>

namespace moesaic {
namespace {

/// Fewer tasks than this for each thread leave some of them waiting for the last.
constexpr std::int64_t kTasksPerThread = 4;

/// Segments [first, end) of which the rows see keys.
struct Segments {
  std::int64_t first;
  std::int64_t end;
};
Segments segments_of(const AttentionRows& rows, const AttentionSpan& sequence,
                     std::int64_t window) {
  const std::int64_t position = sequence.position + rows.first;
  const std::int64_t lowest =
      window > 0 ? std::max<std::int64_t>(0, position + 1 - window) : std::int64_t{0};
  return {lowest / kKeysPerSegment, (position + rows.count - 1) / kKeysPerSegment + 1};
}

/// Rows of a task: whole passes of the kernel, as many as leave all threads enough tasks.
std::int64_t task_rows(std::span<const AttentionSpan> sequences, const AttentionShape& shape,
                       int threads) {
  std::int64_t tokens = 0;
  for (const AttentionSpan& sequence : sequences) tokens += sequence.num_tokens;
  const std::int64_t tasks = threads > 1 ? kTasksPerThread * threads : 1;
  const std::int64_t share = tokens * shape.group * shape.kv_heads / tasks;
  return std::clamp(share / kAttentionRows * kAttentionRows, kAttentionRows, kAttentionTaskRows);
}

}  // namespace

void AttentionPlan::cut(std::span<const AttentionSpan> sequences, const AttentionShape& shape,
                        int threads) {
  const std::int64_t tokens_per_task =
      std::max<std::int64_t>(1, task_rows(sequences, shape, threads) / shape.group);
  tasks_.clear();
  joins_.clear();
  state_floats_ = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::int64_t rows = sequences[s].num_tokens;
    // Later rows see more keys: the longest tasks go first.
    for (std::int64_t block = divide_up(rows, tokens_per_task); block-- > 0;) {
      const std::int64_t first = block * tokens_per_task;
      const std::int64_t count = std::min(tokens_per_task, rows - first);
      for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
        tasks_.push_back({.rows = {s, head, first, count}});
      }
    }
  }
  if (threads > 1 && std::ssize(tasks_) < kTasksPerThread * threads) cut_segments(sequences, shape);
}

/// So few tasks have rows that are few too: a pass of the kernel or a group each.
std::int64_t AttentionPlan::most_state_floats(const AttentionShape& shape, std::int64_t tokens,
                                              std::int64_t positions, int threads) {
  const std::int64_t seen = shape.window > 0 ? std::min(positions, shape.window) : positions;
  if (threads == 1 || positions <= kKeysPerSegment) return 0;
  const std::int64_t cut_rows = kTasksPerThread * threads * std::max(kAttentionRows, shape.group);
  const std::int64_t rows = std::min(tokens * shape.group * shape.kv_heads, cut_rows);
  const std::int64_t segments = std::min((seen + kAttentionRows) / kKeysPerSegment + 2,
                                         divide_up(positions, kKeysPerSegment));
  return rows * segments * attention_state_floats(shape.value_dim);
}

void AttentionPlan::cut_segments(std::span<const AttentionSpan> sequences,
                                 const AttentionShape& shape) {
  whole_tasks_.swap(tasks_);
  tasks_.clear();
  for (const AttentionTask& whole : whole_tasks_) {
    const AttentionRows& rows = whole.rows;
    const Segments segments = segments_of(rows, sequences[rows.sequence], shape.window);
    const std::int64_t count = segments.end - segments.first;
    if (count == 1) {
      tasks_.push_back(whole);
      continue;
    }
    const std::int64_t stride = rows.count * shape.group * attention_state_floats(shape.value_dim);
    joins_.push_back({rows, count, stride, state_floats_});
    for (std::int64_t segment = segments.first; segment < segments.end; ++segment) {
      tasks_.push_back({rows, segment, state_floats_});
      state_floats_ += stride;
    }
  }
}

}  // namespace moesaic
