#include "src/model/gqa_attention.h"

#include <algorithm>
#include <cstring>

#include "base/rounding.h"
#include "kernels/kernel_table.h"
#include "src/model/attention_plan.h"
#include "src/model/gqa_gradient.h"
#include "src/model/gqa_heads.h"
#include "src/model/rotary_rows.h"

namespace moesaic {
namespace {

/// Keys and values of one sequence and layer: a page has a block of keys and a block of values
/// (kernels/attention_blocks.h) for every KV head.
class GqaPages {
 public:
  GqaPages(const GqaConfig& config, Precision precision, const Sequence& sequence,
           std::int64_t layer)
      : sequence_(sequence),
        layer_(layer),
        kind_(attention_kind(precision)),
        head_dim_(config.head_dim),
        key_bytes_(key_block_bytes(kind_, head_dim_)),
        head_bytes_(key_bytes_ + value_block_bytes(kind_, head_dim_)) {}

  [[nodiscard]] std::byte* keys(std::int64_t page, std::int64_t kv_head) const {
    return sequence_.page(layer_, page) + kv_head * head_bytes_;
  }
  [[nodiscard]] std::byte* values(std::int64_t page, std::int64_t kv_head) const {
    return keys(page, kv_head) + key_bytes_;
  }
  /// Writes one position of one head. `key` and `value` [head_dim].
  void store(const VectorKernels& vector, std::int64_t kv_head, std::int64_t position,
             const float* key, const float* value) const {
    const std::int64_t page = position / kPagePositions;
    const std::int64_t slot = position % kPagePositions;
    store_key(kind_, vector, key, head_dim_, {keys(page, kv_head), slot});
    store_value(kind_, vector, value, head_dim_, {values(page, kv_head), slot});
  }

 private:
  const Sequence& sequence_;
  std::int64_t layer_;
  AttentionKind kind_;
  std::int64_t head_dim_;
  std::int64_t key_bytes_;
  std::int64_t head_bytes_;
};

class GqaAttention : public TokenMixer {
 public:
  GqaAttention(const GqaConfig& config, LayerContext& context);

  void begin(const Batch& batch) override;
  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override;
  [[nodiscard]] std::unique_ptr<Stash> make_stash() const override {
    if (config_.gated) return TokenMixer::make_stash();
    return std::make_unique<GqaStash>(config_);
  }
  void backward(const MixerLayer& layer, const Batch& batch, Stash& stash,
                const PartBackward& part) override;

 private:
  /// `rows`: those of a task, kAttentionTaskRows or a whole group.
  struct Scratch {
    Buffer<float> queries;       // [rows, head_dim]
    Buffer<float> out;           // [rows, head_dim]
    Buffer<float> sinks;         // [rows] or none
    Buffer<float> gates;         // [gate_width] or none
    Buffer<float> log_sum_exps;  // [rows]
    ByteBuffer kernel;
    std::vector<std::int64_t> first_keys;
    std::vector<std::int64_t> end_keys;
    std::vector<const std::byte*> key_blocks;    // of the pages that a task sees
    std::vector<const std::byte*> value_blocks;  // the same
  };
  /// Queries, keys and values of a row; gates stand before them.
  [[nodiscard]] float* queries_of(std::int64_t row) const {
    return context_.projected.data() + row * config_.projected_width() + config_.gate_width();
  }
  /// From the queries and gates of each head to all gates, then all queries.
  void part_gates(std::int64_t row, Scratch& scratch) const;
  void apply_gates(std::int64_t row) const;
  void prepare_token(const MixerLayer& layer, const BatchToken& token, std::int64_t row) const;
  void find_blocks(const MixerLayer& layer, const BatchSequence& sequence,
                   const AttentionTask& task, Scratch& scratch) const;
  /// The kernel's arguments for a task; queries, ranges and blocks go to `scratch`.
  [[nodiscard]] AttentionArgs gather(const MixerLayer& layer, const BatchSequence& sequence,
                                     const AttentionTask& task, Scratch& scratch) const;
  /// The sinks of these rows, in `scratch`; null if the layer has none.
  [[nodiscard]] const float* gather_sinks(const MixerLayer& layer, const AttentionRows& rows,
                                          Scratch& scratch) const;
  void scatter(const BatchSequence& sequence, const AttentionRows& rows,
               const Scratch& scratch) const;
  void join(const MixerLayer& layer, const BatchSequence& sequence, const AttentionJoin& join,
            Scratch& scratch) const;
  [[nodiscard]] float* kept_sums(const Scratch& scratch) const {
    return log_sum_exps_.rows() > 0 ? scratch.log_sum_exps.data() : nullptr;
  }
  /// Attention of all rows, from context_.projected to mixed_.
  void attend(const MixerLayer& layer, const Batch& batch);

  const GqaConfig& config_;
  LayerContext& context_;
  const AttentionKernel& kernel_;
  GqaHeads heads_;
  RotaryRows rotary_;
  std::vector<AttentionSpan> spans_;  // of the batch's sequences
  AttentionPlan plan_;
  Buffer<float> states_;          // of the segments of the plan
  std::vector<Scratch> scratch_;  // one a worker
  GqaGradient gradient_;
  // Of this forward pass:
  MatrixView<float> mixed_;         // [rows, q_width]
  MatrixView<float> log_sum_exps_;  // [rows, num_heads] or null
};

GqaAttention::GqaAttention(const GqaConfig& config, LayerContext& context)
    : config_(config),
      context_(context),
      kernel_(find_attention_kernel(context.compute.isa, attention_kind(context.config.precision))),
      heads_(config, *context.compute.vector),
      rotary_(config.rope),
      scratch_(static_cast<std::size_t>(context.compute.pool->size())),
      gradient_(config, context, kernel_) {
  const std::int64_t group = config.group();
  const std::int64_t rows = std::max(kAttentionTaskRows, group);
  for (Scratch& scratch : scratch_) {
    scratch.queries = Buffer<float>(rows * config.head_dim);
    scratch.out = Buffer<float>(rows * config.head_dim);
    if (config.sinks) scratch.sinks = Buffer<float>(rows);
    if (config.gated) scratch.gates = Buffer<float>(config.gate_width());
    scratch.log_sum_exps = Buffer<float>(rows);
    scratch.kernel = ByteBuffer(
        static_cast<std::size_t>(attention_scratch_bytes(config.head_dim, config.head_dim)));
    scratch.first_keys.resize(static_cast<std::size_t>(rows));
    scratch.end_keys.resize(static_cast<std::size_t>(rows));
  }
}

void GqaAttention::begin(const Batch& batch) {
  rotary_.begin(batch, *context_.compute.pool);
  spans_.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    spans_.push_back({sequence.position, sequence.num_rows});
  }
  plan_.cut(spans_, config_.shape(), context_.compute.pool->size());
  states_.reserve(plan_.state_floats());
}

void GqaAttention::part_gates(std::int64_t row, Scratch& scratch) const {
  const std::int64_t size = config_.head_dim;
  float* const heads = queries_of(row) - config_.gate_width();  // a query and its gate each
  for (std::int64_t h = 0; h < config_.num_heads; ++h) {
    std::copy_n(heads + (2 * h + 1) * size, size, scratch.gates.data() + h * size);
  }
  for (std::int64_t h = config_.num_heads; h-- > 0;) {  // the last first: none is overwritten
    std::copy_n(heads + 2 * h * size, size, queries_of(row) + h * size);
  }
  std::copy_n(scratch.gates.data(), config_.gate_width(), heads);
}

void GqaAttention::apply_gates(std::int64_t row) const {
  const std::int64_t width = config_.gate_width();
  float* const gates = queries_of(row) - width;
  context_.compute.vector->sigmoid(gates, width);
  const std::span<float> mixed = mixed_.row(row);
  for (std::int64_t i = 0; i < width; ++i) mixed[static_cast<std::size_t>(i)] *= gates[i];
}

void GqaAttention::prepare_token(const MixerLayer& layer, const BatchToken& token,
                                 std::int64_t row) const {
  const GqaPages pages(config_, context_.config.precision, *token.sequence, layer.index);
  float* const queries = queries_of(row);
  heads_.prepare(layer.weights, rotary_.row(row), queries);
  const float* const keys = queries + config_.q_width();
  const float* const values = keys + config_.kv_width();
  for (std::int64_t h = 0; h < config_.num_kv_heads; ++h) {
    pages.store(*context_.compute.vector, h, token.position, keys + h * config_.head_dim,
                values + h * config_.head_dim);
  }
}

/// The blocks of the pages from 0 to the last that the task sees; those before its segment and its
/// window stay null.
void GqaAttention::find_blocks(const MixerLayer& layer, const BatchSequence& sequence,
                               const AttentionTask& task, Scratch& scratch) const {
  const GqaPages blocks(config_, context_.config.precision, *sequence.sequence, layer.index);
  const std::int64_t first_position = sequence.position + task.rows.first;
  const std::int64_t last_end = first_position + task.rows.count;
  const std::int64_t end = std::min(last_end, task.end_key());
  std::int64_t first_key = task.first_key();
  if (config_.window > 0) first_key = std::max(first_key, first_position + 1 - config_.window);
  const auto pages = static_cast<std::size_t>(divide_up(end, kPagePositions));
  scratch.key_blocks.assign(pages, nullptr);
  scratch.value_blocks.assign(pages, nullptr);
  for (auto page = static_cast<std::size_t>(first_key / kPagePositions); page < pages; ++page) {
    const auto index = static_cast<std::int64_t>(page);
    scratch.key_blocks[page] = blocks.keys(index, task.rows.kv_head);
    scratch.value_blocks[page] = blocks.values(index, task.rows.kv_head);
  }
}

AttentionArgs GqaAttention::gather(const MixerLayer& layer, const BatchSequence& sequence,
                                   const AttentionTask& task, Scratch& scratch) const {
  const AttentionRows& rows = task.rows;
  const std::int64_t head_dim = config_.head_dim;
  const std::int64_t group = config_.group();
  const std::int64_t group_width = group * head_dim;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::int64_t row = sequence.first_row + rows.first + i;
    const std::int64_t end = sequence.position + rows.first + i + 1;
    const std::int64_t first = config_.window > 0 ? end - config_.window : 0;
    std::memcpy(scratch.queries.data() + i * group_width,
                queries_of(row) + rows.kv_head * group_width,
                static_cast<std::size_t>(group_width * 4));
    for (std::int64_t g = 0; g < group; ++g) {
      const auto at = static_cast<std::size_t>(i * group + g);
      scratch.first_keys[at] = std::max(task.first_key(), first);
      scratch.end_keys[at] = std::min(end, task.end_key());
    }
  }
  find_blocks(layer, sequence, task, scratch);
  return {.queries = scratch.queries.data(),
          .query_stride = head_dim,
          .num_rows = rows.count * group,
          .head_dim = head_dim,
          .value_dim = head_dim,
          .first_keys = scratch.first_keys.data(),
          .end_keys = scratch.end_keys.data(),
          .key_blocks = scratch.key_blocks.data(),
          .value_blocks = scratch.value_blocks.data(),
          .scale = static_cast<float>(config_.scale),
          .sinks = task.is_whole() ? gather_sinks(layer, rows, scratch) : nullptr,
          .scratch = scratch.kernel.data(),
          .out = scratch.out.data(),
          .out_stride = head_dim,
          .log_sum_exps = kept_sums(scratch),
          .states = task.is_whole() ? nullptr : states_.data() + task.states};
}

const float* GqaAttention::gather_sinks(const MixerLayer& layer, const AttentionRows& rows,
                                        Scratch& scratch) const {
  if (!config_.sinks) return nullptr;
  const std::int64_t group = config_.group();
  const float* const sinks = layer.weights[kSinks].vector.data() + rows.kv_head * group;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    std::copy_n(sinks, group, scratch.sinks.data() + i * group);
  }
  return scratch.sinks.data();
}

void GqaAttention::scatter(const BatchSequence& sequence, const AttentionRows& rows,
                           const Scratch& scratch) const {
  const std::int64_t group = config_.group();
  const std::int64_t group_width = group * config_.head_dim;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::int64_t row = sequence.first_row + rows.first + i;
    std::memcpy(mixed_.row(row).data() + rows.kv_head * group_width,
                scratch.out.data() + i * group_width, static_cast<std::size_t>(group_width * 4));
    if (log_sum_exps_.rows() == 0) continue;
    std::copy_n(scratch.log_sum_exps.data() + i * group, group,
                log_sum_exps_.row(row).data() + rows.kv_head * group);
  }
}

void GqaAttention::join(const MixerLayer& layer, const BatchSequence& sequence,
                        const AttentionJoin& join, Scratch& scratch) const {
  kernel_.merge({.states = states_.data() + join.states,
                 .num_segments = join.num_segments,
                 .segment_stride = join.segment_stride,
                 .num_rows = join.rows.count * config_.group(),
                 .value_dim = config_.head_dim,
                 .sinks = gather_sinks(layer, join.rows, scratch),
                 .out = scratch.out.data(),
                 .out_stride = config_.head_dim,
                 .log_sum_exps = kept_sums(scratch)});
  scatter(sequence, join.rows, scratch);
}

void GqaAttention::attend(const MixerLayer& layer, const Batch& batch) {
  ThreadPool& pool = *context_.compute.pool;
  pool.parallel_for(std::ssize(plan_.tasks()), [&](std::int64_t index, int worker) {
    const AttentionTask& task = plan_.tasks()[static_cast<std::size_t>(index)];
    const BatchSequence& sequence = batch.sequences[task.rows.sequence];
    Scratch& scratch = scratch_[static_cast<std::size_t>(worker)];
    kernel_.attend(gather(layer, sequence, task, scratch));
    if (task.is_whole()) scatter(sequence, task.rows, scratch);
  });
  if (plan_.joins().empty()) return;
  pool.parallel_for(std::ssize(plan_.joins()), [&](std::int64_t index, int worker) {
    const AttentionJoin& segments = plan_.joins()[static_cast<std::size_t>(index)];
    join(layer, batch.sequences[segments.rows.sequence], segments,
         scratch_[static_cast<std::size_t>(worker)]);
  });
}

void GqaAttention::forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) {
  const WeightSet& weights = layer.weights;
  const std::int64_t rows = batch.rows();
  const std::int64_t width = config_.projected_width();
  auto* const keep = static_cast<GqaStash*>(part.keep);
  context_.projected.reserve(rows * width);
  const MatrixView<float> prepared = context_.projected.matrix(rows, width);
  MatrixView<float> projected = prepared;
  if (keep != nullptr) {
    keep->resize(rows);
    projected = keep->projected();
    mixed_ = keep->attended();
    log_sum_exps_ = keep->log_sum_exps();
  } else {
    context_.mixed.reserve(rows * config_.q_width());
    mixed_ = context_.mixed.matrix(rows, config_.q_width());
    log_sum_exps_ = {};
  }
  context_.linear.forward(weights[kQkv], weights[kQkvBias].vector, part.x, projected);
  context_.compute.pool->for_each_row(rows, [&](std::int64_t row, int worker) {
    if (keep != nullptr) std::ranges::copy(projected.row(row), prepared.row(row).data());
    if (config_.gated) part_gates(row, scratch_[static_cast<std::size_t>(worker)]);
    prepare_token(layer, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  attend(layer, batch);
  if (config_.gated) {
    context_.compute.pool->for_each_row(rows, [&](std::int64_t row) { apply_gates(row); });
  }
  context_.linear.forward(weights[kO], weights[kOBias].vector, mixed_, part.y);
}

void GqaAttention::backward(const MixerLayer& layer, const Batch& /*batch*/, Stash& stash,
                            const PartBackward& part) {
  gradient_.run(layer.weights, rotary_, static_cast<const GqaStash&>(stash), part);
}

}  // namespace

std::unique_ptr<TokenMixer> make_gqa_attention(const GqaConfig& config, LayerContext& context) {
  return std::make_unique<GqaAttention>(config, context);
}

}  // namespace moesaic
