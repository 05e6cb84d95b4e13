#include "src/model/attention_run.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/kernel_table.h"

namespace moesaic {
namespace {

/// call(row of the batch, query head, index): what a task has, token by token.
template <typename Call>
void for_each_head(const BatchSequence& sequence, const AttentionRows& rows, std::int64_t group,
                   const Call& call) {
  std::int64_t index = 0;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::int64_t row = sequence.first_row + rows.first + i;
    for (std::int64_t g = 0; g < group; ++g) call(row, rows.kv_head * group + g, index++);
  }
}

}  // namespace

AttentionRun::AttentionRun(const AttentionSizes& sizes, LayerContext& context)
    : sizes_(sizes),
      context_(context),
      kernel_(find_attention_kernel(context.compute.isa, attention_kind(context.config.precision))),
      key_bytes_(key_block_bytes(kernel_.kind, sizes.key_dim)),
      head_bytes_(key_bytes_ + value_block_bytes(kernel_.kind, sizes.value_dim)),
      scratch_(static_cast<std::size_t>(context.compute.pool->size())) {
  const std::int64_t rows = std::max(kAttentionTaskRows, sizes.most_group);
  for (Scratch& scratch : scratch_) {
    scratch.queries = Buffer<float>(rows * sizes.key_dim);
    scratch.out = Buffer<float>(rows * sizes.value_dim);
    scratch.sinks = Buffer<float>(rows);
    scratch.log_sum_exps = Buffer<float>(rows);
    scratch.kernel = ByteBuffer(
        static_cast<std::size_t>(attention_scratch_bytes(sizes.key_dim, sizes.value_dim)));
    scratch.first_keys.resize(static_cast<std::size_t>(rows));
    scratch.end_keys.resize(static_cast<std::size_t>(rows));
  }
}

void AttentionRun::begin(const Batch& batch, const AttentionShape& shape) {
  shape_ = shape;
  spans_.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    spans_.push_back({sequence.position, sequence.num_rows});
  }
  plan_.cut(spans_, shape, context_.compute.pool->size());
  states_.reserve(plan_.state_floats());
}

void AttentionRun::store(std::int64_t layer, const BatchToken& token, std::int64_t head,
                         const float* key, const float* value) const {
  const VectorKernels& vector = *context_.compute.vector;
  const std::int64_t slot = token.position % kPagePositions;
  std::byte* const block = keys(*token.sequence, layer, token.position / kPagePositions, head);
  store_key(kernel_.kind, vector, key, sizes_.key_dim, {block, slot});
  store_value(kernel_.kind, vector, value, sizes_.value_dim, {block + key_bytes_, slot});
}

void AttentionRun::run(std::int64_t layer, const Batch& batch, const AttentionHeads& heads) {
  const Pass pass{layer, batch, heads};
  ThreadPool& pool = *context_.compute.pool;
  pool.parallel_for(std::ssize(plan_.tasks()), [&](std::int64_t index, int worker) {
    attend(pass, plan_.tasks()[static_cast<std::size_t>(index)],
           scratch_[static_cast<std::size_t>(worker)]);
  });
  if (plan_.joins().empty()) return;
  pool.parallel_for(std::ssize(plan_.joins()), [&](std::int64_t index, int worker) {
    join(pass, plan_.joins()[static_cast<std::size_t>(index)],
         scratch_[static_cast<std::size_t>(worker)]);
  });
}

void AttentionRun::attend(const Pass& pass, const AttentionTask& task, Scratch& scratch) const {
  gather(pass, task, scratch);
  find_blocks(pass, task, scratch);
  const bool is_whole = task.is_whole();
  kernel_.attend({.queries = scratch.queries.data(),
                  .query_stride = sizes_.key_dim,
                  .num_rows = task.rows.count * shape_.group,
                  .head_dim = sizes_.key_dim,
                  .value_dim = sizes_.value_dim,
                  .first_keys = scratch.first_keys.data(),
                  .end_keys = scratch.end_keys.data(),
                  .key_blocks = scratch.key_blocks.data(),
                  .value_blocks = scratch.value_blocks.data(),
                  .scale = static_cast<float>(sizes_.scale),
                  .sinks = is_whole ? gather_sinks(pass, task.rows, scratch) : nullptr,
                  .scratch = scratch.kernel.data(),
                  .out = scratch.out.data(),
                  .out_stride = sizes_.value_dim,
                  .log_sum_exps = sums_of(pass, scratch),
                  .states = is_whole ? nullptr : states_.data() + task.states});
  if (is_whole) scatter(pass, task.rows, scratch);
}

void AttentionRun::join(const Pass& pass, const AttentionJoin& join, Scratch& scratch) const {
  kernel_.merge({.states = states_.data() + join.states,
                 .num_segments = join.num_segments,
                 .segment_stride = join.segment_stride,
                 .num_rows = join.rows.count * shape_.group,
                 .value_dim = sizes_.value_dim,
                 .sinks = gather_sinks(pass, join.rows, scratch),
                 .out = scratch.out.data(),
                 .out_stride = sizes_.value_dim,
                 .log_sum_exps = sums_of(pass, scratch)});
  scatter(pass, join.rows, scratch);
}

void AttentionRun::gather(const Pass& pass, const AttentionTask& task, Scratch& scratch) const {
  const BatchSequence& sequence = pass.batch.sequences[task.rows.sequence];
  for_each_head(sequence, task.rows, shape_.group,
                [&](std::int64_t row, std::int64_t head, std::int64_t index) {
                  const std::int64_t end = sequence.position + row - sequence.first_row + 1;
                  const std::int64_t first = shape_.window > 0 ? end - shape_.window : 0;
                  std::copy_n(pass.heads.queries.at(row, head), sizes_.key_dim,
                              scratch.queries.data() + index * sizes_.key_dim);
                  const auto at = static_cast<std::size_t>(index);
                  scratch.first_keys[at] = std::max(task.first_key(), first);
                  scratch.end_keys[at] = std::min(end, task.end_key());
                });
}

/// The blocks of the pages from 0 to the last that the task sees; those before its segment and its
/// window stay null.
void AttentionRun::find_blocks(const Pass& pass, const AttentionTask& task,
                               Scratch& scratch) const {
  const BatchSequence& sequence = pass.batch.sequences[task.rows.sequence];
  const std::int64_t head = sizes_.cache_heads > 1 ? task.rows.kv_head : 0;
  const std::int64_t first_position = sequence.position + task.rows.first;
  const std::int64_t end = std::min(first_position + task.rows.count, task.end_key());
  std::int64_t first_key = task.first_key();
  if (shape_.window > 0) first_key = std::max(first_key, first_position + 1 - shape_.window);
  const auto pages = static_cast<std::size_t>(divide_up(end, kPagePositions));
  scratch.key_blocks.assign(pages, nullptr);
  scratch.value_blocks.assign(pages, nullptr);
  for (auto page = static_cast<std::size_t>(first_key / kPagePositions); page < pages; ++page) {
    const std::byte* const block =
        keys(*sequence.sequence, pass.layer, static_cast<std::int64_t>(page), head);
    scratch.key_blocks[page] = block;
    scratch.value_blocks[page] = block + key_bytes_;
  }
}

/// Null where there are none.
const float* AttentionRun::gather_sinks(const Pass& pass, const AttentionRows& rows,
                                        Scratch& scratch) const {
  if (pass.heads.sinks == nullptr) return nullptr;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    std::copy_n(pass.heads.sinks + rows.kv_head * shape_.group, shape_.group,
                scratch.sinks.data() + i * shape_.group);
  }
  return scratch.sinks.data();
}

void AttentionRun::scatter(const Pass& pass, const AttentionRows& rows,
                           const Scratch& scratch) const {
  const AttentionHeads& heads = pass.heads;
  for_each_head(pass.batch.sequences[rows.sequence], rows, shape_.group,
                [&](std::int64_t row, std::int64_t head, std::int64_t index) {
                  std::copy_n(scratch.out.data() + index * sizes_.value_dim, sizes_.value_dim,
                              heads.results.at(row, head));
                  if (heads.log_sum_exps.data == nullptr) return;
                  *heads.log_sum_exps.at(row, head) = scratch.log_sum_exps.data()[index];
                });
}

}  // namespace moesaic
