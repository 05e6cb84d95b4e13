#include "src/model/gqa_gradient.h"

#include <algorithm>

namespace moesaic {

void GqaStash::resize(std::int64_t rows) {
  rows_ = rows;
  projected_.resize(rows * config_.projected_width());
  attended_.resize(rows * config_.q_width());
  log_sum_exps_.resize(rows * config_.num_heads);
}

MatrixView<float> GqaStash::projected() const {
  return projected_.matrix(rows_, config_.projected_width());
}
MatrixView<float> GqaStash::attended() const {
  return attended_.matrix(rows_, config_.q_width());
}
MatrixView<float> GqaStash::log_sum_exps() const {
  return log_sum_exps_.matrix(rows_, config_.num_heads);
}

std::int64_t GqaStash::bytes() const {
  return 4 * (projected_.size() + attended_.size() + log_sum_exps_.size());
}

GqaGradient::GqaGradient(const GqaConfig& config, LayerContext& context,
                         const AttentionKernel& kernel)
    : config_(config),
      context_(context),
      heads_(config, *context.compute.vector),
      attention_(kernel, context),
      head_rows_(static_cast<std::size_t>(context.compute.pool->size())) {}

void GqaGradient::run(const WeightSet& weights, const RotaryRows& angles, const GqaStash& stash,
                      const PartBackward& part) {
  const std::int64_t rows = part.x.rows();
  const std::int64_t width = config_.projected_width();
  gradients_.reserve(rows * width);
  pass_back_results(weights, stash, part);
  prepare(weights, angles, stash);
  differentiate(stash, part.samples);
  context_.compute.pool->for_each_row(rows, [&](std::int64_t row, int worker) {
    Buffer<float>& scratch = head_rows_[static_cast<std::size_t>(worker)];
    scratch.reserve(width);
    if (config_.group() > 1) add_parts(row);
    heads_.pass_back(weights, angles.row(row),
                     {.projected = stash.projected().row(row).data() + config_.gate_width(),
                      .scratch = scratch.data(),
                      .gradient = gradients_.data() + row * width + config_.gate_width()});
    if (config_.gated) heads_.join_gates(gradients_.data() + row * width, scratch.data());
  });
  context_.linear.backward(weights[kQkv],
                           part.of_product(part.x, gradients_.matrix(rows, width), part.dx));
}

void GqaGradient::pass_back_results(const WeightSet& weights, const GqaStash& stash,
                                    const PartBackward& part) {
  const std::int64_t rows = part.x.rows();
  const MatrixView<float> attended = stash.attended();
  context_.mixed.reserve(rows * config_.q_width());
  context_.projected.reserve(rows * config_.projected_width());
  const MatrixView<float> gradients = context_.mixed.matrix(rows, config_.q_width());
  MatrixView<const float> results = attended;
  const auto gates_of = [&](std::int64_t row) {
    return gradients_.data() + row * config_.projected_width();
  };
  if (config_.gated) {
    const MatrixView<float> gated = context_.projected.matrix(rows, config_.q_width());
    context_.compute.pool->for_each_row(rows, [&](std::int64_t row) {
      std::copy_n(stash.projected().row(row).data(), config_.gate_width(), gates_of(row));
      heads_.apply_gates(gates_of(row), attended.row(row).data(), gated.row(row).data());
    });
    results = gated;
  }
  context_.linear.backward(weights[kO], part.of_product(results, part.dy, gradients));
  if (!config_.gated) return;
  context_.compute.pool->for_each_row(rows, [&](std::int64_t row) {
    heads_.pass_back_gates(gates_of(row), attended.row(row).data(), gradients.row(row).data());
  });
}

void GqaGradient::prepare(const WeightSet& weights, const RotaryRows& angles,
                          const GqaStash& stash) {
  const MatrixView<float> projected = stash.projected();
  context_.projected.reserve(projected.rows() * projected.cols());
  context_.compute.pool->for_each_row(projected.rows(), [&](std::int64_t row) {
    float* const prepared = context_.projected.data() + row * projected.cols();
    std::ranges::copy(projected.row(row), prepared);
    heads_.prepare(weights, angles.row(row), prepared + config_.gate_width());
  });
}

AttentionGradientArgs GqaGradient::head_of(const GqaStash& stash, const SampleRange& sample,
                                           std::int64_t head) const {
  const std::int64_t width = config_.projected_width();
  const std::int64_t q_width = config_.q_width();
  const std::int64_t head_column = head * config_.head_dim;  // of all query heads
  const std::int64_t q_column = config_.gate_width() + head_column;
  const std::int64_t k_column =
      config_.gate_width() + q_width + head / config_.group() * config_.head_dim;
  const std::int64_t v_column = k_column + config_.kv_width();
  const auto at = [&](float* matrix, std::int64_t stride, std::int64_t column) {
    return AttentionGradientArgs::Rows<float>{matrix + sample.first_row * stride + column, stride};
  };
  const auto in = [&](float* matrix, std::int64_t stride, std::int64_t column) {
    return AttentionGradientArgs::Rows<const float>{at(matrix, stride, column).data, stride};
  };
  float* const prepared = context_.projected.data();
  const bool shared = config_.group() > 1;
  return {.num_rows = sample.num_rows,
          .window = config_.window,
          .head_dim = config_.head_dim,
          .value_dim = config_.head_dim,
          .scale = static_cast<float>(config_.scale),
          .queries = in(prepared, width, q_column),
          .keys = in(prepared, width, k_column),
          .values = in(prepared, width, v_column),
          .results = in(stash.attended().data(), q_width, head_column),
          .result_gradients = in(context_.mixed.data(), q_width, head_column),
          .log_sum_exps = in(stash.log_sum_exps().data(), config_.num_heads, head),
          .query_gradients = at(gradients_.data(), width, q_column),
          .key_gradients = shared ? at(key_parts_.data(), q_width, head_column)
                                  : at(gradients_.data(), width, k_column),
          .value_gradients = shared ? at(value_parts_.data(), q_width, head_column)
                                    : at(gradients_.data(), width, v_column)};
}

void GqaGradient::differentiate(const GqaStash& stash, std::span<const SampleRange> samples) {
  const std::int64_t rows = stash.projected().rows();
  if (config_.group() > 1) {
    key_parts_.reserve(rows * config_.q_width());
    value_parts_.reserve(rows * config_.q_width());
  }
  attention_.run(samples, config_.num_heads, [&](const SampleRange& sample, std::int64_t head) {
    return head_of(stash, sample, head);
  });
}

void GqaGradient::add_parts(std::int64_t row) const {
  const VectorKernels& vector = *context_.compute.vector;
  const std::int64_t head_dim = config_.head_dim;
  const auto add = [&](const Buffer<float>& parts, float* sums) {
    const float* part = parts.data() + row * config_.q_width();
    for (std::int64_t h = 0; h < config_.num_kv_heads; ++h, sums += head_dim) {
      std::copy_n(part, head_dim, sums);
      part += head_dim;
      for (std::int64_t g = 1; g < config_.group(); ++g, part += head_dim)
        vector.add(part, head_dim, sums);
    }
  };
  float* const keys = gradients_.data() + row * config_.projected_width() + config_.gate_width() +
                      config_.q_width();
  add(key_parts_, keys);
  add(value_parts_, keys + config_.kv_width());
}

}  // namespace moesaic
