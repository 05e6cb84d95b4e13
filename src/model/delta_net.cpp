#include "src/model/delta_net.h"

#include <algorithm>

#include "src/model/delta_gradient.h"
#include "src/model/delta_inputs.h"

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
  DeltaNet(const DeltaConfig& config, LayerContext& context)
      : config_(config),
        context_(context),
        inputs_(config, context),
        gradient_(config, context, inputs_) {}

  void begin(const Batch& /*batch*/) override {}
  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override;
  [[nodiscard]] std::unique_ptr<Stash> make_stash() const override {
    return std::make_unique<DeltaStash>(config_);
  }
  void backward(const MixerLayer& layer, const Batch& /*batch*/, Stash& stash,
                const PartBackward& part) override {
    gradient_.run(layer.weights, static_cast<const DeltaStash&>(stash), part);
  }

 private:
  static float* state_of(const MixerLayer& layer, const BatchSequence& sequence) {
    return reinterpret_cast<float*>(sequence.sequence->state(layer.index));
  }
  void convolve(const MixerLayer& layer, const Batch& batch, MatrixView<const float> projected);
  void convolve_head(const MixerLayer& layer, const BatchSequence& sequence, const DeltaHead& head,
                     MatrixView<const float> projected);
  /// To `results` [rows, value_width].
  void recur(const MixerLayer& layer, const Batch& batch, MatrixView<float> results);
  /// Columns of a value head's state, from the first one on.
  struct Piece {
    std::int64_t head;
    std::int64_t first_column;
    std::int64_t columns;
  };
  void recur_piece(const MixerLayer& layer, const BatchSequence& sequence, const Piece& piece,
                   MatrixView<float> results);

  const DeltaConfig& config_;
  LayerContext& context_;
  DeltaInputs inputs_;
  Buffer<float> projected_rates_;  // [rows, 2 value_heads]
  DeltaGradient gradient_;
};

void DeltaNet::convolve_head(const MixerLayer& layer, const BatchSequence& sequence,
                             const DeltaHead& head, MatrixView<const float> projected) {
  inputs_.convolve(layer.weights, head,
                   {.projected = projected,
                    .first_row = sequence.first_row,
                    .num_rows = sequence.num_rows,
                    .before = state_of(layer, sequence) + head.channel,
                    .before_stride = config_.channels()});
}

void DeltaNet::convolve(const MixerLayer& layer, const Batch& batch,
                        MatrixView<const float> projected) {
  const std::int64_t heads = 2 * config_.key_heads + config_.value_heads;
  const bool is_short = batch.rows() < kFewRows * std::ssize(batch.sequences);
  context_.compute.pool->for_each(
      std::ssize(batch.sequences) * heads, is_short ? kHeadsTogether : 1, [&](std::int64_t index) {
        convolve_head(layer, batch.sequences[static_cast<std::size_t>(index / heads)],
                      config_.convolved_head(index % heads), projected);
      });
}

/// Columns do not see each other.
void DeltaNet::recur_piece(const MixerLayer& layer, const BatchSequence& sequence,
                           const Piece& piece, MatrixView<float> results) {
  DeltaRule rule = inputs_.rule(piece.head, {sequence.first_row, sequence.num_rows});
  float* const state =
      state_of(layer, sequence) + config_.first_state() + piece.head * config_.head_state();
  rule.values += piece.first_column;
  rule.columns = piece.columns;
  rule.state = state + piece.first_column * config_.key_dim;
  rule.y = results.data() + sequence.first_row * config_.value_width() +
           piece.head * config_.value_dim + piece.first_column;
  rule.y_stride = config_.value_width();
  context_.compute.vector->delta.delta_rule(rule);
}

void DeltaNet::recur(const MixerLayer& layer, const Batch& batch, MatrixView<float> results) {
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
                {head % config_.value_heads, first, std::min(width, config_.value_dim - first)},
                results);
  });
}

void DeltaNet::forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) {
  const std::int64_t rows = batch.rows();
  const std::int64_t scalars = 2 * config_.value_heads;
  auto* const keep = static_cast<DeltaStash*>(part.keep);
  context_.projected.reserve(rows * config_.projected_width());
  context_.mixed.reserve(rows * config_.value_width());
  projected_rates_.reserve(rows * scalars);
  inputs_.reserve(rows);
  const MatrixView<float> mixed = context_.mixed.matrix(rows, config_.value_width());
  MatrixView<float> projected = context_.projected.matrix(rows, config_.projected_width());
  MatrixView<float> rates = projected_rates_.matrix(rows, scalars);
  MatrixView<float> results = mixed;
  if (keep != nullptr) {
    keep->resize(rows);
    projected = keep->projected();
    rates = keep->rates();
    results = keep->results();
  }
  ThreadPool& pool = *context_.compute.pool;
  context_.linear.forward(layer.weights[DeltaWeight::kIn], {}, part.x, projected);
  context_.linear.forward(layer.weights[DeltaWeight::kRates], {}, part.x, rates);
  pool.for_each_row(rows, [&](std::int64_t row) {
    inputs_.find_rates(layer.weights, rates.row(row).data(), row);
  });
  convolve(layer, batch, projected);
  recur(layer, batch, results);
  pool.for_each_row(rows, [&](std::int64_t row) {
    if (keep != nullptr) std::ranges::copy(results.row(row), mixed.row(row).data());
    inputs_.finish(layer.weights, projected.row(row).data(), mixed.row(row).data());
  });
  context_.linear.forward(layer.weights[DeltaWeight::kOut], {}, mixed, part.y);
}

}  // namespace

std::unique_ptr<TokenMixer> make_delta_net(const DeltaConfig& config, LayerContext& context) {
  return std::make_unique<DeltaNet>(config, context);
}

}  // namespace moesaic
