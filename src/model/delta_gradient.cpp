#include "src/model/delta_gradient.h"

#include <algorithm>
#include <utility>

namespace moesaic {
namespace {

SampleRange rows_of_chunk(const SampleRange& sample, std::int64_t chunk) {
  const std::int64_t first = chunk * kDeltaChunk;
  return {sample.first_row + first, std::min(kDeltaChunk, sample.num_rows - first)};
}

}  // namespace

void DeltaStash::resize(std::int64_t rows) {
  rows_ = rows;
  projected_.resize(rows * config_.projected_width());
  rates_.resize(rows * 2 * config_.value_heads);
  results_.resize(rows * config_.value_width());
}

MatrixView<float> DeltaStash::projected() const {
  return projected_.matrix(rows_, config_.projected_width());
}
MatrixView<float> DeltaStash::rates() const {
  return rates_.matrix(rows_, 2 * config_.value_heads);
}
MatrixView<float> DeltaStash::results() const {
  return results_.matrix(rows_, config_.value_width());
}

std::int64_t DeltaStash::bytes() const {
  return 4 * (projected_.size() + rates_.size() + results_.size());
}

DeltaGradient::DeltaGradient(const DeltaConfig& config, LayerContext& context, DeltaInputs& inputs)
    : config_(config),
      context_(context),
      inputs_(inputs),
      scratch_(static_cast<std::size_t>(context.compute.pool->size())) {}

DeltaGradient::Scratch::Scratch(const DeltaConfig& config, std::int64_t rows) {
  std::int64_t next = 0;
  const auto take = [&](std::int64_t floats) {
    return std::exchange(next, next + round_up(floats, kDeltaColumns));
  };
  states = take((divide_up(rows, kDeltaChunk) + 1) * config.head_state());
  state_gradient = take(config.head_state());
  end_gradient = take(config.head_state());
  errors = take(rows * config.value_dim);
  error_gradients = take(kDeltaChunk * config.value_dim);
  results = take(kDeltaChunk * config.value_dim);
  before = take((config.taps - 1) * std::max(config.key_dim, config.value_dim));
  query_factors = take(rows);
  key_factors = take(rows);
  chunk = take(delta_chunk_floats(config.key_dim, config.value_dim));
  end = next;
}

std::int64_t DeltaGradient::worker_floats(const DeltaConfig& config, std::int64_t rows) {
  return Scratch(config, rows).end;
}

DeltaRows<float> DeltaGradient::gradients_of(const DeltaHead& head, std::int64_t row) const {
  const std::int64_t stride = config_.projected_width();
  return {context_.projected.data() + row * stride + head.column, stride};
}

DeltaRows<const float> DeltaGradient::result_gradients(std::int64_t value_head,
                                                       std::int64_t row) const {
  const std::int64_t stride = config_.value_width();
  return {result_gradients_.data() + row * stride + value_head * config_.value_dim, stride};
}

void DeltaGradient::run(const WeightSet& weights, const DeltaStash& stash,
                        const PartBackward& part) {
  const std::int64_t rows = part.x.rows();
  ThreadPool& pool = *context_.compute.pool;
  inputs_.reserve(rows);
  context_.projected.reserve(rows * config_.projected_width());
  rate_gradients_.reserve(rows * 2 * config_.value_heads);
  pass_back_results(weights, stash, part);
  pool.for_each_row(rows, [&](std::int64_t row) {
    inputs_.find_rates(weights, stash.rates().row(row).data(), row);
  });
  const std::int64_t heads = config_.key_heads;
  pool.parallel_for(std::ssize(part.samples) * heads, [&](std::int64_t index, int worker) {
    const SampleRange& sample = part.samples[static_cast<std::size_t>(index / heads)];
    if (sample.num_rows == 0) return;
    Buffer<float>& memory = scratch_[static_cast<std::size_t>(worker)];
    const std::int64_t floats = worker_floats(config_, sample.num_rows);
    if (memory.size() < floats) memory.resize(floats);
    pass_back_key_head({weights, stash, sample, Scratch(config_, sample.num_rows), memory.data()},
                       index % heads);
  });
  pool.for_each_row(rows, [&](std::int64_t row) { pass_back_rates(weights, stash, row); });
  context_.linear.backward(
      weights[DeltaWeight::kIn],
      part.of_product(part.x, context_.projected.matrix(rows, config_.projected_width()), part.dx));
  const MatrixView<float> of_rates = result_gradients_.matrix(rows, config_.hidden);
  context_.linear.backward(
      weights[DeltaWeight::kRates],
      part.of_product(part.x, rate_gradients_.matrix(rows, 2 * config_.value_heads), of_rates));
  context_.add_rows(of_rates, part.dx);
}

void DeltaGradient::pass_back_results(const WeightSet& weights, const DeltaStash& stash,
                                      const PartBackward& part) {
  const std::int64_t rows = part.x.rows();
  const std::int64_t width = config_.value_width();
  const std::int64_t dim = config_.value_dim;
  context_.mixed.reserve(rows * width);
  result_gradients_.reserve(rows * std::max(width, config_.hidden));
  const MatrixView<float> normed = context_.mixed.matrix(rows, width);
  const MatrixView<float> gradients = result_gradients_.matrix(rows, width);
  const float* const weight = weights[DeltaWeight::kNorm].vector.data();
  const auto epsilon = static_cast<float>(config_.rms_norm_eps);
  ThreadPool& pool = *context_.compute.pool;
  pool.for_each_row(rows, [&](std::int64_t row) {
    std::ranges::copy(stash.results().row(row), normed.row(row).data());
    inputs_.finish(weights, stash.projected().row(row).data(), normed.row(row).data());
  });
  context_.linear.backward(weights[DeltaWeight::kOut], part.of_product(normed, part.dy, gradients));
  pool.for_each_row(rows, [&](std::int64_t row) {
    float* const projected = context_.projected.data() + row * config_.projected_width();
    for (std::int64_t head = 0; head < config_.value_heads; ++head) {
      const std::int64_t gate = config_.gate_column(head);
      vector().delta_gradient.gated_norm({.weight = weight,
                                          .epsilon = epsilon,
                                          .gate = stash.projected().row(row).data() + gate,
                                          .y = stash.results().row(row).data() + head * dim,
                                          .n = dim},
                                         gradients.row(row).data() + head * dim, projected + gate);
    }
  });
}

void DeltaGradient::convolve(const Task& task, const DeltaHead& head, float* factors) {
  std::fill_n(task.scratch(task.at.before), (config_.taps - 1) * head.width, 0.0F);
  inputs_.convolve(task.weights, head,
                   {.projected = task.stash.projected(),
                    .first_row = task.sample.first_row,
                    .num_rows = task.sample.num_rows,
                    .before = task.scratch(task.at.before),
                    .before_stride = head.width,
                    .factors = factors});
}

void DeltaGradient::pass_back_key_head(const Task& task, std::int64_t key_head) {
  const DeltaHead query = config_.query_head(key_head);
  const DeltaHead key = config_.key_head(key_head);
  convolve(task, query, task.scratch(task.at.query_factors));
  convolve(task, key, task.scratch(task.at.key_factors));
  for (const DeltaHead& head : {query, key}) {  // value heads add to them
    const DeltaRows<float> gradients = gradients_of(head, task.sample.first_row);
    for (std::int64_t row = 0; row < task.sample.num_rows; ++row) {
      std::fill_n(gradients.row(row), head.width, 0.0F);
    }
  }
  const std::int64_t first = key_head * config_.group();
  for (std::int64_t head = first; head < first + config_.group(); ++head) {
    convolve(task, config_.value_head(head), nullptr);
    find_states(task, head);
    pass_back_value_head(task, head);
    pass_back_convolution(task, config_.value_head(head));
  }
  pass_back_units(task, query, task.scratch(task.at.query_factors));
  pass_back_units(task, key, task.scratch(task.at.key_factors));
  pass_back_convolution(task, query);
  pass_back_convolution(task, key);
}

void DeltaGradient::find_states(const Task& task, std::int64_t value_head) {
  const std::int64_t dim = config_.value_dim;
  float* state = task.scratch(task.at.states);
  std::fill_n(state, config_.head_state(), 0.0F);
  for (std::int64_t chunk = 0; chunk < divide_up(task.sample.num_rows, kDeltaChunk); ++chunk) {
    const float* const before = state;
    state += config_.head_state();
    std::copy_n(before, config_.head_state(), state);
    DeltaRule rule = inputs_.rule(value_head, rows_of_chunk(task.sample, chunk));
    rule.state = state;
    rule.y = task.scratch(task.at.results);
    rule.y_stride = dim;
    rule.errors = task.scratch(task.at.errors) + chunk * kDeltaChunk * dim;
    rule.errors_stride = dim;
    vector().delta.delta_rule(rule);
  }
}

void DeltaGradient::pass_back_value_head(const Task& task, std::int64_t value_head) {
  std::fill_n(task.scratch(task.at.state_gradient), config_.head_state(), 0.0F);
  const std::int64_t chunks = divide_up(task.sample.num_rows, kDeltaChunk);
  for (std::int64_t chunk = chunks; chunk-- > 0;) pass_back_chunk(task, value_head, chunk);
}

void DeltaGradient::pass_back_state(const Task& task, std::int64_t value_head,
                                    const SampleRange& rows) {
  const DeltaRule rule = inputs_.rule(value_head, rows);
  vector().delta_gradient.delta_rule(
      {.queries = rule.queries,
       .keys = rule.keys,
       .result_gradients = result_gradients(value_head, rows.first_row),
       .decays = rule.decays,
       .rates = rule.rates,
       .scalar_stride = rule.scalar_stride,
       .key_dim = rule.key_dim,
       .columns = rule.columns,
       .rows = rule.rows,
       .state_gradient = task.scratch(task.at.state_gradient),
       .error_gradients = {task.scratch(task.at.error_gradients), config_.value_dim}});
}

void DeltaGradient::pass_back_chunk(const Task& task, std::int64_t value_head, std::int64_t chunk) {
  const std::int64_t key_head = value_head / config_.group();
  const std::int64_t dim = config_.value_dim;
  const SampleRange rows = rows_of_chunk(task.sample, chunk);
  const std::int64_t first = rows.first_row;
  const bool is_last = first + rows.num_rows == task.sample.first_row + task.sample.num_rows;
  std::copy_n(task.scratch(task.at.state_gradient), config_.head_state(),
              task.scratch(task.at.end_gradient));
  pass_back_state(task, value_head, rows);
  const float* const states = task.scratch(task.at.states) + chunk * config_.head_state();
  const DeltaRule rule = inputs_.rule(value_head, rows);
  float* const rate_gradients = rate_gradients_.data() + first * rule.scalar_stride + value_head;
  const float* const results = task.stash.results().row(first).data() + value_head * dim;
  vector().delta_gradient.chunk(
      {.queries = rule.queries,
       .keys = rule.keys,
       .values = {rule.values, rule.value_stride},
       .results = {results, config_.value_width()},
       .result_gradients = result_gradients(value_head, first),
       .errors = task.scratch(task.at.errors) + chunk * kDeltaChunk * dim,
       .error_gradients = task.scratch(task.at.error_gradients),
       .decays = rule.decays,
       .rates = rule.rates,
       .scalar_stride = rule.scalar_stride,
       .key_dim = rule.key_dim,
       .value_dim = dim,
       .rows = rule.rows,
       .start = chunk > 0 ? states : nullptr,
       .end = states + config_.head_state(),
       .end_gradient = is_last ? nullptr : task.scratch(task.at.end_gradient),
       .scratch = task.scratch(task.at.chunk),
       .query_gradients = gradients_of(config_.query_head(key_head), first),
       .key_gradients = gradients_of(config_.key_head(key_head), first),
       .value_gradients = gradients_of(config_.value_head(value_head), first),
       .decay_gradients = rate_gradients + config_.value_heads,
       .rate_gradients = rate_gradients});
}

void DeltaGradient::pass_back_units(const Task& task, const DeltaHead& head, const float* factors) {
  const float* const units = inputs_.rows_of(head, task.sample.first_row);
  const DeltaRows<float> gradients = gradients_of(head, task.sample.first_row);
  for (std::int64_t row = 0; row < task.sample.num_rows; ++row) {
    vector().delta_gradient.unit({.unit = units + row * head.width,
                                  .scale = inputs_.unit_scale(head),
                                  .factor = factors[row],
                                  .n = head.width},
                                 gradients.row(row));
  }
}

void DeltaGradient::pass_back_convolution(const Task& task, const DeltaHead& head) {
  const std::int64_t stride = config_.projected_width();
  const std::int64_t first = task.sample.first_row;
  const float* const taps = task.weights[DeltaWeight::kConvolution].vector.data() + head.channel;
  vector().delta_gradient.convolve(
      {.x = {task.stash.projected().row(first).data() + head.column, stride},
       .weights = {taps, config_.channels()},
       .taps = config_.taps,
       .channels = head.width,
       .rows = task.sample.num_rows,
       .gradient = gradients_of(head, first)});
}

void DeltaGradient::pass_back_rates(const WeightSet& weights, const DeltaStash& stash,
                                    std::int64_t row) {
  const std::int64_t heads = config_.value_heads;
  const float* const projected = stash.rates().row(row).data();
  float* const gradients = rate_gradients_.data() + row * 2 * heads;
  float* const acting = inputs_.rates(row);  // as which they are not wanted any more
  for (std::int64_t head = 0; head < heads; ++head) {
    acting[heads + head] = projected[config_.rate_column(head) + config_.step_distance()];
  }
  vector().delta_gradient.decay_slopes(weights[DeltaWeight::kDecayLogs].vector.data(),
                                       weights[DeltaWeight::kStepBias].vector.data(), heads,
                                       acting + heads);
  for (std::int64_t head = 0; head < heads; ++head) {
    acting[head] = gradients[head];
    acting[heads + head] *= gradients[heads + head];
  }
  for (std::int64_t head = 0; head < heads; ++head) {
    float* const rate = gradients + config_.rate_column(head);
    *rate = acting[head];
    rate[config_.step_distance()] = acting[heads + head];
  }
}

}  // namespace moesaic
