#include "src/model/gqa_attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernel_table.h"
#include "src/model/rotary.h"

namespace moesaic {
namespace {

/// Query rows of one task: they share every load of keys and values.
constexpr std::int64_t kMaxTaskRows = 64;
constexpr std::int64_t kTokensPerTask = 8;

void clamp(std::span<float> values, float limit) {
  for (float& value : values) value = std::clamp(value, -limit, limit);
}

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
  void store(std::int64_t kv_head, std::int64_t position, const float* key,
             const float* value) const {
    const std::int64_t page = position / kPagePositions;
    const std::int64_t slot = position % kPagePositions;
    store_key(kind_, key, head_dim_, {keys(page, kv_head), slot});
    store_value(kind_, value, head_dim_, {values(page, kv_head), slot});
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
  void forward(const MixerLayer& layer, const Batch& batch, MatrixView<const float> x,
               MatrixView<float> y) override;

 private:
  struct Scratch {
    Buffer<float> queries;  // [kMaxTaskRows, head_dim]
    Buffer<float> out;      // [kMaxTaskRows, head_dim]
    ByteBuffer kernel;
    std::vector<std::int64_t> first_keys;
    std::vector<std::int64_t> end_keys;
    std::vector<const std::byte*> key_blocks;    // of the pages that a task sees
    std::vector<const std::byte*> value_blocks;  // the same
  };
  /// Tokens [first, first + count) of a sequence and the query heads of one KV head.
  struct Task {
    std::size_t sequence;  // of the batch
    std::int64_t kv_head;
    std::int64_t first;
    std::int64_t count;
  };
  void plan_tasks(const Batch& batch);
  void prepare_token(const MixerLayer& layer, const BatchToken& token, std::int64_t row) const;
  void find_blocks(const MixerLayer& layer, const Sequence& sequence, const Task& task,
                   Scratch& scratch) const;
  void attend(const MixerLayer& layer, const BatchSequence& sequence, const Task& task,
              Scratch& scratch) const;

  const GqaConfig& config_;
  LayerContext& context_;
  const AttentionKernel& kernel_;
  Rotary rotary_;
  std::vector<Task> tasks_;
  Buffer<float> cosines_;         // [rows, rotary half]
  Buffer<float> sines_;           // [rows, rotary half]
  std::vector<Scratch> scratch_;  // one a worker
};

GqaAttention::GqaAttention(const GqaConfig& config, LayerContext& context)
    : config_(config),
      context_(context),
      kernel_(find_attention_kernel(context.compute.isa, attention_kind(context.config.precision))),
      rotary_(config.rope),
      scratch_(static_cast<std::size_t>(context.compute.pool->size())) {
  const std::int64_t group = config.num_heads / config.num_kv_heads;
  const std::int64_t rows = std::max(kMaxTaskRows, group);
  for (Scratch& scratch : scratch_) {
    scratch.queries = Buffer<float>(rows * config.head_dim);
    scratch.out = Buffer<float>(rows * config.head_dim);
    scratch.kernel = ByteBuffer(
        static_cast<std::size_t>(attention_scratch_bytes(config.head_dim, config.head_dim)));
    scratch.first_keys.resize(static_cast<std::size_t>(rows));
    scratch.end_keys.resize(static_cast<std::size_t>(rows));
  }
}

void GqaAttention::begin(const Batch& batch) {
  const std::int64_t half = rotary_.half();
  cosines_.reserve(batch.rows() * half);
  sines_.reserve(batch.rows() * half);
  context_.compute.pool->for_each(batch.rows(), kTokensPerTask, [&](std::int64_t row) {
    const BatchToken& token = batch.tokens[static_cast<std::size_t>(row)];
    rotary_.angles(token.position, token.sequence->rope_length(token.position),
                   {cosines_.data() + row * half, static_cast<std::size_t>(half)},
                   {sines_.data() + row * half, static_cast<std::size_t>(half)});
  });
  plan_tasks(batch);
}

void GqaAttention::plan_tasks(const Batch& batch) {
  const std::int64_t group = config_.num_heads / config_.num_kv_heads;
  const std::int64_t tokens_per_task = std::max<std::int64_t>(1, kMaxTaskRows / group);
  tasks_.clear();
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    const std::int64_t rows = batch.sequences[s].num_rows;
    // Later rows see more keys: the longest tasks go first.
    for (std::int64_t block = (rows + tokens_per_task - 1) / tokens_per_task; block-- > 0;) {
      const std::int64_t first = block * tokens_per_task;
      const std::int64_t count = std::min(tokens_per_task, rows - first);
      for (std::int64_t h = 0; h < config_.num_kv_heads; ++h)
        tasks_.push_back({s, h, first, count});
    }
  }
}

void GqaAttention::prepare_token(const MixerLayer& layer, const BatchToken& token,
                                 std::int64_t row) const {
  const VectorKernels& vector = *context_.compute.vector;
  const WeightSet& weights = layer.weights;
  const GqaPages pages(config_, context_.config.precision, *token.sequence, layer.index);
  const std::int64_t head_dim = config_.head_dim;
  const std::int64_t q_width = config_.q_width();
  const std::int64_t kv_width = config_.kv_width();
  float* const q = context_.projected.data() + row * (q_width + 2 * kv_width);
  float* const k = q + q_width;
  const float* const v = k + kv_width;
  const auto epsilon = static_cast<float>(config_.rms_norm_eps);
  if (config_.qk_norm == QkNorm::whole) {
    vector.rms_norm(q, weights[kQNorm].vector.data(), epsilon, q_width, q);
    vector.rms_norm(k, weights[kKNorm].vector.data(), epsilon, kv_width, k);
  }
  if (config_.clip_qkv) {
    clamp({q, static_cast<std::size_t>(q_width + 2 * kv_width)},
          static_cast<float>(*config_.clip_qkv));
  }
  const auto half = static_cast<std::size_t>(rotary_.half());
  const std::span<const float> cosines(cosines_.data() + row * rotary_.half(), half);
  const std::span<const float> sines(sines_.data() + row * rotary_.half(), half);
  const auto norm_and_rotate = [&](float* head, std::span<const float> norm) {
    if (config_.qk_norm == QkNorm::per_head) {
      vector.rms_norm(head, norm.data(), epsilon, head_dim, head);
    }
    rotate(cosines, sines, head);
  };
  for (std::int64_t h = 0; h < config_.num_heads; ++h)
    norm_and_rotate(q + h * head_dim, weights[kQNorm].vector);
  for (std::int64_t h = 0; h < config_.num_kv_heads; ++h) {
    norm_and_rotate(k + h * head_dim, weights[kKNorm].vector);
    pages.store(h, token.position, k + h * head_dim, v + h * head_dim);
  }
}

/// The blocks of the pages from 0 to the last that the task sees; those before its window stay
/// null.
void GqaAttention::find_blocks(const MixerLayer& layer, const Sequence& sequence, const Task& task,
                               Scratch& scratch) const {
  const GqaPages blocks(config_, context_.config.precision, sequence, layer.index);
  const std::int64_t first_position = sequence.size() + task.first;
  const std::int64_t end = first_position + task.count;
  const std::int64_t first_key =
      config_.window > 0 ? std::max<std::int64_t>(0, first_position + 1 - config_.window) : 0;
  const auto pages = static_cast<std::size_t>((end + kPagePositions - 1) / kPagePositions);
  scratch.key_blocks.assign(pages, nullptr);
  scratch.value_blocks.assign(pages, nullptr);
  for (auto page = static_cast<std::size_t>(first_key / kPagePositions); page < pages; ++page) {
    const auto index = static_cast<std::int64_t>(page);
    scratch.key_blocks[page] = blocks.keys(index, task.kv_head);
    scratch.value_blocks[page] = blocks.values(index, task.kv_head);
  }
}

void GqaAttention::attend(const MixerLayer& layer, const BatchSequence& sequence, const Task& task,
                          Scratch& scratch) const {
  const std::int64_t kv_head = task.kv_head;
  const std::int64_t first = task.first;
  const std::int64_t count = task.count;
  const std::int64_t head_dim = config_.head_dim;
  const std::int64_t group = config_.num_heads / config_.num_kv_heads;
  const std::int64_t q_stride = config_.q_width() + 2 * config_.kv_width();
  const std::int64_t group_bytes = group * head_dim * 4;
  const std::int64_t window = config_.window;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = sequence.first_row + first + i;
    const std::int64_t position = sequence.sequence->size() + first + i;
    std::memcpy(scratch.queries.data() + i * group * head_dim,
                context_.projected.data() + row * q_stride + kv_head * group * head_dim,
                static_cast<std::size_t>(group_bytes));
    for (std::int64_t g = 0; g < group; ++g) {
      const auto at = static_cast<std::size_t>(i * group + g);
      scratch.end_keys[at] = position + 1;
      scratch.first_keys[at] = window > 0 ? std::max<std::int64_t>(0, position + 1 - window) : 0;
    }
  }
  find_blocks(layer, *sequence.sequence, task, scratch);
  const AttentionArgs args{.queries = scratch.queries.data(),
                           .query_stride = head_dim,
                           .num_rows = count * group,
                           .head_dim = head_dim,
                           .value_dim = head_dim,
                           .first_keys = scratch.first_keys.data(),
                           .end_keys = scratch.end_keys.data(),
                           .key_blocks = scratch.key_blocks.data(),
                           .value_blocks = scratch.value_blocks.data(),
                           .scale = static_cast<float>(config_.scale),
                           .scratch = scratch.kernel.data(),
                           .out = scratch.out.data(),
                           .out_stride = head_dim};
  kernel_.attend(args);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = sequence.first_row + first + i;
    std::memcpy(context_.mixed.data() + row * config_.q_width() + kv_head * group * head_dim,
                scratch.out.data() + i * group * head_dim, static_cast<std::size_t>(group_bytes));
  }
}

void GqaAttention::forward(const MixerLayer& layer, const Batch& batch, MatrixView<const float> x,
                           MatrixView<float> y) {
  const WeightSet& weights = layer.weights;
  const std::int64_t rows = batch.rows();
  const std::int64_t width = config_.q_width() + 2 * config_.kv_width();
  context_.projected.reserve(rows * width);
  context_.mixed.reserve(rows * config_.q_width());
  context_.linear.forward(weights[kQkv].matrix, weights[kQkvBias].vector, x,
                          context_.projected.matrix(rows, width));
  context_.compute.pool->for_each(rows, kTokensPerTask, [&](std::int64_t row) {
    prepare_token(layer, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  context_.compute.pool->parallel_for(std::ssize(tasks_), [&](std::int64_t index, int worker) {
    const Task& task = tasks_[static_cast<std::size_t>(index)];
    attend(layer, batch.sequences[task.sequence], task, scratch_[static_cast<std::size_t>(worker)]);
  });
  context_.linear.forward(weights[kO].matrix, weights[kOBias].vector,
                          context_.mixed.matrix(rows, config_.q_width()), y);
}

}  // namespace

std::unique_ptr<TokenMixer> make_gqa_attention(const GqaConfig& config, LayerContext& context) {
  return std::make_unique<GqaAttention>(config, context);
}

}  // namespace moesaic
