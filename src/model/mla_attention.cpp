#include "src/model/mla_attention.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/rounding.h"
#include "kernels/kernel_table.h"
#include "src/model/rotary_rows.h"

namespace moesaic {
namespace {

/// What one sequence and layer keeps: a page has a block of keys, latent and rotary part, and a
/// block of values, the latent once more (kernels/attention_blocks.h).
class LatentPages {
 public:
  LatentPages(const MlaConfig& config, Precision precision, const Sequence& sequence,
              std::int64_t layer)
      : config_(config),
        sequence_(sequence),
        layer_(layer),
        kind_(attention_kind(precision)),
        key_bytes_(key_block_bytes(kind_, config.key_dim())) {}

  [[nodiscard]] std::byte* keys(std::int64_t page) const { return sequence_.page(layer_, page); }
  [[nodiscard]] std::byte* values(std::int64_t page) const { return keys(page) + key_bytes_; }
  /// Writes one position. `key` [key_dim].
  void store(const VectorKernels& vector, std::int64_t position, const float* key) const {
    const std::int64_t page = position / kPagePositions;
    const std::int64_t slot = position % kPagePositions;
    store_key(kind_, vector, key, config_.key_dim(), {keys(page), slot});
    store_value(kind_, vector, key, config_.latent, {values(page), slot});
  }

 private:
  const MlaConfig& config_;
  const Sequence& sequence_;
  std::int64_t layer_;
  AttentionKind kind_;
  std::int64_t key_bytes_;
};

/// The rows of one head in a matrix that has those of all heads.
PackedMatrix rows_of_head(const PackedMatrix& all, std::int64_t head, std::int64_t rows) {
  PackedMatrix part = all;
  part.rows = rows;
  part.panels = all.panel(head * rows / kPanelColumns);
  return part;
}

/// Every token takes the same way, whether it comes with others or alone: queries meet the latent,
/// not keys that are made of it.
class MlaAttention : public TokenMixer {
 public:
  MlaAttention(const MlaConfig& config, LayerContext& context);

  void begin(const Batch& batch) override;
  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override;

 private:
  /// `rows`: those of a task, kAttentionTaskRows or a whole group.
  struct Scratch {
    Buffer<float> queries;  // [rows, key_dim]
    Buffer<float> out;      // [rows, latent]
    ByteBuffer kernel;
    std::vector<std::int64_t> first_keys;
    std::vector<std::int64_t> end_keys;
    std::vector<const std::byte*> key_blocks;    // of the pages that a task sees
    std::vector<const std::byte*> value_blocks;  // the same
  };
  /// Of this forward pass; all but `mixed` one behind the other in context_.projected.
  struct Rows {
    MatrixView<float> inner;    // [rows, query_rank]
    MatrixView<float> queries;  // [rows, heads * query_dim]
    MatrixView<float> latents;  // [rows, key_dim]
    MatrixView<float> mixed;    // [heads * rows, key_dim], a head after the other
  };

  void set_rows(std::int64_t count);
  void project(const WeightSet& weights, MatrixView<const float> x);
  void norm(const WeightSet& weights, std::size_t which, std::span<float> x) const;
  /// A head's queries without their rotary part times its matrix of keys: the queries of latents.
  void meet_keys(const PackedMatrix& keys);
  /// What comes of attention to a head's latents times its matrix of values; y [rows, heads *
  /// value_dim].
  [[nodiscard]] MatrixView<const float> meet_values(const PackedMatrix& values);
  void prepare_token(const MixerLayer& layer, const BatchToken& token, std::int64_t row) const;
  void find_blocks(const MixerLayer& layer, const BatchSequence& sequence,
                   const AttentionTask& task, Scratch& scratch) const;
  /// The kernel's arguments for a task; queries, ranges and blocks go to `scratch`.
  [[nodiscard]] AttentionArgs gather(const MixerLayer& layer, const BatchSequence& sequence,
                                     const AttentionTask& task, Scratch& scratch) const;
  void scatter(const BatchSequence& sequence, const AttentionRows& rows,
               const Scratch& scratch) const;
  /// Attention of all rows of rows_.mixed, in whose place its results come.
  void attend(const MixerLayer& layer, const Batch& batch);
  /// call(row of rows_.mixed, index) for the rows of a task, token by token.
  template <typename Call>
  void for_each_row_of(const BatchSequence& sequence, const AttentionRows& rows,
                       const Call& call) const;

  const MlaConfig& config_;
  LayerContext& context_;
  const AttentionKernel& kernel_;
  RotaryRows rotary_;
  AttentionShape shape_;              // of the batch
  std::vector<AttentionSpan> spans_;  // of the batch's sequences
  AttentionPlan plan_;
  Buffer<float> states_;          // of the segments of the plan
  std::vector<Scratch> scratch_;  // one a worker
  Rows rows_;
  std::vector<GemmGroup> groups_;            // [heads]
  std::vector<const std::byte*> head_rows_;  // [heads * rows]
};

MlaAttention::MlaAttention(const MlaConfig& config, LayerContext& context)
    : config_(config),
      context_(context),
      kernel_(find_attention_kernel(context.compute.isa, attention_kind(context.config.precision))),
      rotary_(config.rope),
      scratch_(static_cast<std::size_t>(context.compute.pool->size())),
      groups_(static_cast<std::size_t>(config.num_heads)) {
  const std::int64_t rows = std::max(kAttentionTaskRows, config.num_heads);
  for (Scratch& scratch : scratch_) {
    scratch.queries = Buffer<float>(rows * config.key_dim());
    scratch.out = Buffer<float>(rows * config.latent);
    scratch.kernel = ByteBuffer(
        static_cast<std::size_t>(attention_scratch_bytes(config.key_dim(), config.latent)));
    scratch.first_keys.resize(static_cast<std::size_t>(rows));
    scratch.end_keys.resize(static_cast<std::size_t>(rows));
  }
}

void MlaAttention::begin(const Batch& batch) {
  rotary_.begin(batch, *context_.compute.pool);
  spans_.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    spans_.push_back({sequence.position, sequence.num_rows});
  }
  const int threads = context_.compute.pool->size();
  shape_ = config_.shape(batch.rows(), threads);
  plan_.cut(spans_, shape_, threads);
  states_.reserve(plan_.state_floats());
}

void MlaAttention::set_rows(std::int64_t count) {
  context_.projected.reserve(count * config_.projected_width());
  context_.mixed.reserve(count * config_.mixed_width());
  head_rows_.resize(static_cast<std::size_t>(count * config_.num_heads));
  const std::int64_t queries = config_.num_heads * config_.query_dim();
  rows_.inner = {context_.projected.data(), count, config_.query_rank};
  rows_.queries = {rows_.inner.data() + count * config_.query_rank, count, queries};
  rows_.latents = {rows_.queries.data() + count * queries, count, config_.key_dim()};
  rows_.mixed = {context_.mixed.data(), config_.num_heads * count, config_.key_dim()};
}

void MlaAttention::norm(const WeightSet& weights, std::size_t which, std::span<float> x) const {
  context_.compute.vector->rms_norm(x.data(), weights[which].vector.data(), MlaConfig::kNormEpsilon,
                                    std::ssize(x), x.data());
}

void MlaAttention::project(const WeightSet& weights, MatrixView<const float> x) {
  MatrixView<const float> inner = x;
  if (config_.query_rank > 0) {
    context_.linear.forward(weights[MlaWeight::kQA], weights[MlaWeight::kQABias].vector, x,
                            rows_.inner);
    context_.for_each_row(x.rows(), [&](std::int64_t row) {
      norm(weights, MlaWeight::kQANorm, rows_.inner.row(row));
    });
    inner = rows_.inner;
  }
  context_.linear.forward(weights[MlaWeight::kQ], {}, inner, rows_.queries);
  context_.linear.forward(weights[MlaWeight::kKvA], weights[MlaWeight::kKvABias].vector, x,
                          rows_.latents);
}

void MlaAttention::meet_keys(const PackedMatrix& keys) {
  const std::int64_t count = rows_.queries.rows();
  for (std::int64_t head = 0; head < config_.num_heads; ++head) {
    for (std::int64_t row = 0; row < count; ++row) {
      head_rows_[static_cast<std::size_t>(head * count + row)] = reinterpret_cast<const std::byte*>(
          rows_.queries.row(row).data() + head * config_.query_dim());
    }
    groups_[static_cast<std::size_t>(head)] = {
        .first_row = head * count,
        .num_rows = count,
        .weights = rows_of_head(keys, head, config_.nope_dim)};
  }
  context_.adapters.transposed().run(
      {.rows = head_rows_.data(), .num_rows = rows_.mixed.rows(), .depth = config_.nope_dim},
      groups_, output_of(rows_.mixed));
}

MatrixView<const float> MlaAttention::meet_values(const PackedMatrix& values) {
  const std::int64_t count = rows_.queries.rows();
  const std::int64_t width = config_.value_dim;
  for (std::int64_t row = 0; row < rows_.mixed.rows(); ++row) {
    head_rows_[static_cast<std::size_t>(row)] =
        reinterpret_cast<const std::byte*>(rows_.mixed.row(row).data());
  }
  for (std::int64_t head = 0; head < config_.num_heads; ++head) {
    groups_[static_cast<std::size_t>(head)].weights = rows_of_head(values, head, width);
  }
  const MatrixView<float> by_head(context_.projected.data(), rows_.mixed.rows(), width);
  context_.gemm.run(
      {.rows = head_rows_.data(), .num_rows = rows_.mixed.rows(), .depth = config_.latent}, groups_,
      output_of(by_head));
  const MatrixView<float> by_token(context_.mixed.data(), count, config_.num_heads * width);
  context_.for_each_row(count, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < config_.num_heads; ++head) {
      std::ranges::copy(by_head.row(head * count + row), by_token.row(row).data() + head * width);
    }
  });
  return by_token;
}

/// The rest of queries and key: norm of the latent, rotation, cache.
void MlaAttention::prepare_token(const MixerLayer& layer, const BatchToken& token,
                                 std::int64_t row) const {
  const VectorKernels& vector = *context_.compute.vector;
  const RotaryAngles angles = rotary_.row(row);
  const std::span<float> latent = rows_.latents.row(row);
  norm(layer.weights, MlaWeight::kKvANorm, latent.first(static_cast<std::size_t>(config_.latent)));
  vector.rotate(angles, latent.data() + config_.latent);
  const LatentPages pages(config_, context_.config.precision, *token.sequence, layer.index);
  pages.store(vector, token.position, latent.data());
  for (std::int64_t head = 0; head < config_.num_heads; ++head) {
    float* const query = rows_.mixed.row(head * rows_.queries.rows() + row).data();
    std::copy_n(rows_.queries.row(row).data() + head * config_.query_dim() + config_.nope_dim,
                config_.rope_dim, query + config_.latent);
    vector.rotate(angles, query + config_.latent);
  }
}

/// The blocks of the pages from 0 to the last that the task sees; those before its segment stay
/// null.
void MlaAttention::find_blocks(const MixerLayer& layer, const BatchSequence& sequence,
                               const AttentionTask& task, Scratch& scratch) const {
  const LatentPages blocks(config_, context_.config.precision, *sequence.sequence, layer.index);
  const std::int64_t last_end = sequence.position + task.rows.first + task.rows.count;
  const auto pages =
      static_cast<std::size_t>(divide_up(std::min(last_end, task.end_key()), kPagePositions));
  scratch.key_blocks.assign(pages, nullptr);
  scratch.value_blocks.assign(pages, nullptr);
  for (auto page = static_cast<std::size_t>(task.first_key() / kPagePositions); page < pages;
       ++page) {
    scratch.key_blocks[page] = blocks.keys(static_cast<std::int64_t>(page));
    scratch.value_blocks[page] = blocks.values(static_cast<std::int64_t>(page));
  }
}

template <typename Call>
void MlaAttention::for_each_row_of(const BatchSequence& sequence, const AttentionRows& rows,
                                   const Call& call) const {
  const std::int64_t first_head = rows.kv_head * shape_.group;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::int64_t row = sequence.first_row + rows.first + i;
    for (std::int64_t g = 0; g < shape_.group; ++g) {
      call(rows_.mixed.row((first_head + g) * rows_.queries.rows() + row).data(),
           i * shape_.group + g);
    }
  }
}

AttentionArgs MlaAttention::gather(const MixerLayer& layer, const BatchSequence& sequence,
                                   const AttentionTask& task, Scratch& scratch) const {
  const std::int64_t width = config_.key_dim();
  for_each_row_of(sequence, task.rows, [&](const float* query, std::int64_t index) {
    const std::int64_t end = sequence.position + task.rows.first + index / shape_.group + 1;
    std::copy_n(query, width, scratch.queries.data() + index * width);
    scratch.first_keys[static_cast<std::size_t>(index)] = task.first_key();
    scratch.end_keys[static_cast<std::size_t>(index)] = std::min(end, task.end_key());
  });
  find_blocks(layer, sequence, task, scratch);
  return {.queries = scratch.queries.data(),
          .query_stride = width,
          .num_rows = task.rows.count * shape_.group,
          .head_dim = width,
          .value_dim = config_.latent,
          .first_keys = scratch.first_keys.data(),
          .end_keys = scratch.end_keys.data(),
          .key_blocks = scratch.key_blocks.data(),
          .value_blocks = scratch.value_blocks.data(),
          .scale = static_cast<float>(config_.scale),
          .scratch = scratch.kernel.data(),
          .out = scratch.out.data(),
          .out_stride = config_.latent,
          .states = task.is_whole() ? nullptr : states_.data() + task.states};
}

void MlaAttention::scatter(const BatchSequence& sequence, const AttentionRows& rows,
                           const Scratch& scratch) const {
  for_each_row_of(sequence, rows, [&](float* mixed, std::int64_t index) {
    std::copy_n(scratch.out.data() + index * config_.latent, config_.latent, mixed);
  });
}

void MlaAttention::attend(const MixerLayer& layer, const Batch& batch) {
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
    const AttentionJoin& join = plan_.joins()[static_cast<std::size_t>(index)];
    Scratch& scratch = scratch_[static_cast<std::size_t>(worker)];
    kernel_.merge({.states = states_.data() + join.states,
                   .num_segments = join.num_segments,
                   .segment_stride = join.segment_stride,
                   .num_rows = join.rows.count * shape_.group,
                   .value_dim = config_.latent,
                   .out = scratch.out.data(),
                   .out_stride = config_.latent});
    scatter(batch.sequences[join.rows.sequence], join.rows, scratch);
  });
}

void MlaAttention::forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) {
  if (batch.rows() == 0) return;
  const WeightSet& weights = layer.weights;
  set_rows(batch.rows());
  project(weights, part.x);
  meet_keys(weights[MlaWeight::kKeys].matrix);
  context_.for_each_row(batch.rows(), [&](std::int64_t row) {
    prepare_token(layer, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  attend(layer, batch);
  context_.linear.forward(weights[MlaWeight::kOut], weights[MlaWeight::kOutBias].vector,
                          meet_values(weights[MlaWeight::kValues].matrix), part.y);
}

}  // namespace

std::unique_ptr<TokenMixer> make_mla_attention(const MlaConfig& config, LayerContext& context) {
  return std::make_unique<MlaAttention>(config, context);
}

}  // namespace moesaic
