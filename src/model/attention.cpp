#include "src/model/attention.h"

#include <algorithm>
#include <cstring>

namespace moesaic {
namespace {

/// Query rows of one task: they share every load of keys and values.
constexpr std::int64_t kMaxTaskRows = 64;
constexpr std::int64_t kTokensPerTask = 8;

void clamp(std::span<float> values, float limit) {
  for (float& value : values) value = std::clamp(value, -limit, limit);
}

}  // namespace

struct Attention::Scratch {
  Buffer<float> queries;  // [kMaxTaskRows, head_dim]
  Buffer<float> out;      // [kMaxTaskRows, head_dim]
  ByteBuffer kernel;
  std::vector<std::int64_t> first_keys;
  std::vector<std::int64_t> end_keys;
};

Attention::Attention(const ModelConfig& config, Precision precision, const Compute& compute)
    : config_(config),
      compute_(compute),
      kernel_(find_attention_kernel(compute.isa, attention_kind(precision))),
      rotary_(config.rope),
      scratch_(static_cast<std::size_t>(compute.pool->size())) {
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

Attention::~Attention() = default;

void Attention::begin(const Batch& batch) {
  const std::int64_t half = rotary_.half();
  cosines_.reserve(batch.rows() * half);
  sines_.reserve(batch.rows() * half);
  compute_.pool->for_each(batch.rows(), kTokensPerTask, [&](std::int64_t row) {
    const BatchToken& token = batch.tokens[static_cast<std::size_t>(row)];
    rotary_.angles(token.position, token.cache->rope_length(token.position),
                   {cosines_.data() + row * half, static_cast<std::size_t>(half)},
                   {sines_.data() + row * half, static_cast<std::size_t>(half)});
  });
  plan_tasks(batch);
}

void Attention::plan_tasks(const Batch& batch) {
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

void Attention::prepare_token(std::int64_t layer, const LayerWeights& weights,
                              const BatchToken& token, std::int64_t row) {
  const std::int64_t head_dim = config_.head_dim;
  const std::int64_t q_width = config_.q_width();
  const std::int64_t kv_width = config_.kv_width();
  float* const q = qkv_.data() + row * (q_width + 2 * kv_width);
  float* const k = q + q_width;
  const float* const v = k + kv_width;
  const auto epsilon = static_cast<float>(config_.rms_norm_eps);
  if (config_.qk_norm == QkNorm::whole) {
    compute_.vector->rms_norm(q, weights.q_norm.data(), epsilon, q_width, q);
    compute_.vector->rms_norm(k, weights.k_norm.data(), epsilon, kv_width, k);
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
      compute_.vector->rms_norm(head, norm.data(), epsilon, head_dim, head);
    }
    rotate(cosines, sines, head);
  };
  for (std::int64_t h = 0; h < config_.num_heads; ++h)
    norm_and_rotate(q + h * head_dim, weights.q_norm);
  for (std::int64_t h = 0; h < config_.num_kv_heads; ++h) {
    norm_and_rotate(k + h * head_dim, weights.k_norm);
    token.cache->store(layer, h, token.position, k + h * head_dim, v + h * head_dim);
  }
}

void Attention::attend(std::int64_t layer, const BatchSequence& sequence, const Task& task,
                       Scratch& scratch) {
  const std::int64_t kv_head = task.kv_head;
  const std::int64_t first = task.first;
  const std::int64_t count = task.count;
  const std::int64_t head_dim = config_.head_dim;
  const std::int64_t group = config_.num_heads / config_.num_kv_heads;
  const std::int64_t q_stride = config_.q_width() + 2 * config_.kv_width();
  const std::int64_t group_bytes = group * head_dim * 4;
  const std::int64_t window = config_.sliding_window[static_cast<std::size_t>(layer)];
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = sequence.first_row + first + i;
    const std::int64_t position = sequence.cache->size() + first + i;
    std::memcpy(scratch.queries.data() + i * group * head_dim,
                qkv_.data() + row * q_stride + kv_head * group * head_dim,
                static_cast<std::size_t>(group_bytes));
    for (std::int64_t g = 0; g < group; ++g) {
      const auto at = static_cast<std::size_t>(i * group + g);
      scratch.end_keys[at] = position + 1;
      scratch.first_keys[at] = window > 0 ? std::max<std::int64_t>(0, position + 1 - window) : 0;
    }
  }
  const AttentionArgs args{.queries = scratch.queries.data(),
                           .query_stride = head_dim,
                           .num_rows = count * group,
                           .head_dim = head_dim,
                           .value_dim = head_dim,
                           .first_keys = scratch.first_keys.data(),
                           .end_keys = scratch.end_keys.data(),
                           .key_blocks = sequence.cache->key_blocks(layer, kv_head),
                           .value_blocks = sequence.cache->value_blocks(layer, kv_head),
                           .scale = static_cast<float>(config_.attention_scale),
                           .scratch = scratch.kernel.data(),
                           .out = scratch.out.data(),
                           .out_stride = head_dim};
  kernel_.attend(args);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = sequence.first_row + first + i;
    std::memcpy(attended_.data() + row * config_.q_width() + kv_head * group * head_dim,
                scratch.out.data() + i * group * head_dim, static_cast<std::size_t>(group_bytes));
  }
}

void Attention::forward(std::int64_t layer, const LayerWeights& weights, const Batch& batch,
                        MatrixView<const float> x, MatrixView<float> y, Linear& linear) {
  const std::int64_t rows = batch.rows();
  const std::int64_t width = config_.q_width() + 2 * config_.kv_width();
  qkv_.reserve(rows * width);
  attended_.reserve(rows * config_.q_width());
  linear.forward(weights.qkv, weights.qkv_bias, x, qkv_.matrix(rows, width));
  compute_.pool->for_each(rows, kTokensPerTask, [&](std::int64_t row) {
    prepare_token(layer, weights, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  compute_.pool->parallel_for(std::ssize(tasks_), [&](std::int64_t index, int worker) {
    const Task& task = tasks_[static_cast<std::size_t>(index)];
    attend(layer, batch.sequences[task.sequence], task, scratch_[static_cast<std::size_t>(worker)]);
  });
  linear.forward(weights.o, weights.o_bias, attended_.matrix(rows, config_.q_width()), y);
}

}  // namespace moesaic
