#include "src/model/delta_net.h"

#include <algorithm>
#include <cmath>

namespace moesaic {
namespace {

/// Where the state of one value head is cut for threads: the kernel takes two blocks at a time.
constexpr std::int64_t kPieceColumns = 2 * kDeltaColumns;
/// As of attention: fewer tasks leave threads waiting for the last.
constexpr std::int64_t kPiecesPerThread = 4;
/// Heads whose convolution is one task where a sequence has few tokens.
constexpr std::int64_t kHeadsTogether = 4;
constexpr std::int64_t kFewRows = 16;

/// S = g S + k e^T, e = b (v - g S^T k), y = S^T q, a token after the other, in f32.
class DeltaNet : public TokenMixer {
 public:
  DeltaNet(const DeltaConfig& config, LayerContext& context) : config_(config), context_(context) {}

  void begin(const Batch& batch) override { rows_ = batch.rows(); }
  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override;

 private:
  [[nodiscard]] const DeltaKernels& kernels() const { return context_.compute.vector->delta; }
  static float* state_of(const MixerLayer& layer, const BatchSequence& sequence) {
    return reinterpret_cast<float*>(sequence.sequence->state(layer.index));
  }
  void project(const MixerLayer& layer, std::int64_t rows, MatrixView<const float> x);
  void find_rates(const MixerLayer& layer, std::int64_t row);
  void convolve(const MixerLayer& layer, const Batch& batch);
  /// `first_row` of the heads whose channels begin at `channel` and are so wide.
  [[nodiscard]] float* channels_at(std::int64_t channel, std::int64_t first_row,
                                   std::int64_t width) {
    return channels_.data() + channel * rows_ + first_row * width;
  }
  void convolve_head(const MixerLayer& layer, const BatchSequence& sequence, std::int64_t head);
  void recur(const MixerLayer& layer, const Batch& batch);
  void recur_piece(const MixerLayer& layer, const BatchSequence& sequence, std::int64_t head,
                   std::int64_t first_column, std::int64_t columns);
  void finish_row(const MixerLayer& layer, std::int64_t row);

  const DeltaConfig& config_;
  LayerContext& context_;
  std::int64_t rows_ = 0;
  Buffer<float> projected_rates_;  // [rows, 2 value_heads]
  Buffer<float> rates_;            // [rows, 2 value_heads]: rates, then decays
  /// Convolved queries, keys and values: of each head [rows, its width], so that a head's rows lie
  /// together.
  Buffer<float> channels_;
};

void DeltaNet::project(const MixerLayer& layer, std::int64_t rows, MatrixView<const float> x) {
  const std::int64_t scalars = 2 * config_.value_heads;
  context_.projected.reserve(rows * config_.projected_width());
  context_.mixed.reserve(rows * config_.value_width());
  projected_rates_.reserve(rows * scalars);
  rates_.reserve(rows * scalars);
  channels_.reserve(rows * config_.channels());
  context_.linear.forward(layer.weights[DeltaWeight::kIn], {}, x,
                          context_.projected.matrix(rows, config_.projected_width()));
  context_.linear.forward(layer.weights[DeltaWeight::kRates], {}, x,
                          projected_rates_.matrix(rows, scalars));
}

void DeltaNet::find_rates(const MixerLayer& layer, std::int64_t row) {
  const std::int64_t heads = config_.value_heads;
  const float* const projected = projected_rates_.data() + row * 2 * heads;
  float* const rates = rates_.data() + row * 2 * heads;
  for (std::int64_t head = 0; head < heads; ++head) {
    const float* const rate = projected + config_.rate_column(head);
    rates[head] = *rate;
    rates[heads + head] = rate[config_.step_distance()];
  }
  context_.compute.vector->sigmoid(rates, heads);
  kernels().decays(layer.weights[DeltaWeight::kDecayLogs].vector.data(),
                   layer.weights[DeltaWeight::kStepBias].vector.data(), heads, rates + heads);
}

/// `head`: of queries, then of keys, then of values.
void DeltaNet::convolve_head(const MixerLayer& layer, const BatchSequence& sequence,
                             std::int64_t head) {
  const std::int64_t keys = config_.key_heads;
  const bool is_value = head >= 2 * keys;
  const bool is_query = head < keys;
  const std::int64_t width = is_value ? config_.value_dim : config_.key_dim;
  const std::int64_t column = is_value   ? config_.value_column(head - 2 * keys)
                              : is_query ? config_.query_column(head)
                                         : config_.key_column(head - keys);
  const std::int64_t channel =
      is_value ? 2 * config_.key_width() + (head - 2 * keys) * width : head * width;
  const std::int64_t first = sequence.first_row;
  float* const out = channels_at(channel, first, width);
  kernels().convolve({.x = context_.projected.data() + first * config_.projected_width() + column,
                      .x_stride = config_.projected_width(),
                      .before = state_of(layer, sequence) + channel,
                      .before_stride = config_.channels(),
                      .weights = layer.weights[DeltaWeight::kConvolution].vector.data() + channel,
                      .weights_stride = config_.channels(),
                      .taps = config_.taps,
                      .channels = width,
                      .rows = sequence.num_rows,
                      .y = out,
                      .y_stride = width});
  if (is_value) return;
  const float scale =
      is_query ? static_cast<float>(1 / std::sqrt(static_cast<double>(width))) : 1.0F;
  for (std::int64_t row = 0; row < sequence.num_rows; ++row) {
    kernels().scale_to_unit(scale, DeltaConfig::kUnitEpsilon, width, out + row * width);
  }
}

void DeltaNet::convolve(const MixerLayer& layer, const Batch& batch) {
  const std::int64_t heads = 2 * config_.key_heads + config_.value_heads;
  const bool is_short = batch.rows() < kFewRows * std::ssize(batch.sequences);
  context_.compute.pool->for_each(
      std::ssize(batch.sequences) * heads, is_short ? kHeadsTogether : 1, [&](std::int64_t index) {
        convolve_head(layer, batch.sequences[static_cast<std::size_t>(index / heads)],
                      index % heads);
      });
}

/// Columns do not see each other.
void DeltaNet::recur_piece(const MixerLayer& layer, const BatchSequence& sequence,
                           std::int64_t head, std::int64_t first_column, std::int64_t columns) {
  const std::int64_t key = head / config_.group() * config_.key_dim;
  const std::int64_t value = head * config_.value_dim;
  const std::int64_t first = sequence.first_row;
  const float* const rates = rates_.data() + first * 2 * config_.value_heads + head;
  float* const state =
      state_of(layer, sequence) + config_.first_state() + head * config_.head_state();
  kernels().delta_rule(
      {.queries = channels_at(key, first, config_.key_dim),
       .keys = channels_at(config_.key_width() + key, first, config_.key_dim),
       .values =
           channels_at(2 * config_.key_width() + value, first, config_.value_dim) + first_column,
       .value_stride = config_.value_dim,
       .decays = rates + config_.value_heads,
       .rates = rates,
       .scalar_stride = 2 * config_.value_heads,
       .key_dim = config_.key_dim,
       .columns = columns,
       .rows = sequence.num_rows,
       .state = state + first_column * config_.key_dim,
       .y = context_.mixed.data() + first * config_.value_width() + value + first_column,
       .y_stride = config_.value_width()});
}

void DeltaNet::recur(const MixerLayer& layer, const Batch& batch) {
  const std::int64_t heads = std::ssize(batch.sequences) * config_.value_heads;
  const std::int64_t pieces = divide_up(config_.value_dim, kPieceColumns);
  const std::int64_t wanted =
      divide_up(kPiecesPerThread * context_.compute.pool->size(), std::max<std::int64_t>(heads, 1));
  const std::int64_t width = divide_up(pieces, std::min(pieces, wanted)) * kPieceColumns;
  const std::int64_t parts = divide_up(config_.value_dim, width);
  context_.compute.pool->parallel_for(heads * parts, [&](std::int64_t task, int /*worker*/) {
    const std::int64_t head = task / parts;
    const std::int64_t first = task % parts * width;
    recur_piece(layer, batch.sequences[static_cast<std::size_t>(head / config_.value_heads)],
                head % config_.value_heads, first, std::min(width, config_.value_dim - first));
  });
}

void DeltaNet::finish_row(const MixerLayer& layer, std::int64_t row) {
  const float* const projected = context_.projected.data() + row * config_.projected_width();
  float* const mixed = context_.mixed.data() + row * config_.value_width();
  for (std::int64_t head = 0; head < config_.value_heads; ++head) {
    kernels().gated_norm(
        layer.weights[DeltaWeight::kNorm].vector.data(), static_cast<float>(config_.rms_norm_eps),
        projected + config_.gate_column(head), config_.value_dim, mixed + head * config_.value_dim);
  }
}

void DeltaNet::forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) {
  const std::int64_t rows = batch.rows();
  ThreadPool& pool = *context_.compute.pool;
  project(layer, rows, part.x);
  pool.for_each_row(rows, [&](std::int64_t row) { find_rates(layer, row); });
  convolve(layer, batch);
  recur(layer, batch);
  pool.for_each_row(rows, [&](std::int64_t row) { finish_row(layer, row); });
  context_.linear.forward(layer.weights[DeltaWeight::kOut], {},
                          context_.mixed.matrix(rows, config_.value_width()), part.y);
}

}  // namespace

std::unique_ptr<TokenMixer> make_delta_net(const DeltaConfig& config, LayerContext& context) {
  return std::make_unique<DeltaNet>(config, context);
}

}  // namespace moesaic
