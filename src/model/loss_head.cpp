#include "src/model/loss_head.h"

#include <algorithm>

namespace moesaic {
namespace {

/// Logits of one piece take about this.
constexpr std::int64_t kLogitBytes = std::int64_t{64} << 20;
/// So many rows hide reading the output matrix behind the products.
constexpr std::int64_t kLeastRows = 64;

}  // namespace

LossHead::LossHead(const ModelConfig& config, const ModelWeights& weights, LayerContext& context,
                   std::int64_t most_rows)
    : config_(config),
      weights_(weights),
      context_(context),
      most_rows_(most_rows),
      head_(config, weights, context),
      transposed_(context.compute) {}

std::int64_t LossHead::rows_at_a_time(std::int64_t vocab_size) {
  return std::max(kLeastRows, kLogitBytes / (4 * vocab_size));
}

void LossHead::run(const Rows& rows, std::span<float> losses, MatrixView<float> dx) {
  const PhaseScope scope(context_.times, Phase::head);
  for (std::int64_t first = 0; first < std::ssize(rows.rows); first += most_rows_) {
    const Piece piece{first, std::min(most_rows_, std::ssize(rows.rows) - first)};
    make_logits(rows, piece);
    make_losses(rows, piece, losses);
    if (dx.rows() > 0) make_gradients(rows, piece, dx);
  }
  weights_.files.require_read();
}

void LossHead::make_logits(const Rows& rows, const Piece& piece) {
  const std::int64_t hidden = rows.x.cols();
  normed_.reserve(piece.count * hidden);
  logits_.reserve(piece.count * config_.vocab_size);
  head_.forward(rows.x,
                rows.rows.subspan(static_cast<std::size_t>(piece.first),
                                  static_cast<std::size_t>(piece.count)),
                normed_.matrix(piece.count, hidden),
                logits_.matrix(piece.count, config_.vocab_size));
}

void LossHead::make_losses(const Rows& rows, const Piece& piece, std::span<float> losses) const {
  const MatrixView<const float> logits = logits_.matrix(piece.count, config_.vocab_size);
  context_.for_each_row(piece.count, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(piece.first + i);
    losses[at] = context_.compute.vector->log_sum_exp(logits.row(i).data(), logits.cols()) -
                 logits(i, rows.targets[at]);
  });
}

void LossHead::make_gradients(const Rows& rows, const Piece& piece, MatrixView<float> dx) {
  const MatrixView<float> logits = logits_.matrix(piece.count, config_.vocab_size);
  const auto scaling = static_cast<float>(config_.logits_scaling);
  context_.for_each_row(piece.count, [&](std::int64_t i) {
    const std::span<float> row = logits.row(i);
    context_.compute.vector->softmax(row.data(), logits.cols());
    row[static_cast<std::size_t>(rows.targets[static_cast<std::size_t>(piece.first + i)])] -= 1;
    if (scaling == 1) return;
    for (float& value : row) value /= scaling;
  });
  const MatrixView<float> gradient = dx.row_range(piece.first, piece.count);
  const GemmGroup group{.num_rows = piece.count, .weights = weights_.lm_head};
  transposed_.run(logit_rows_.of(logits), {&group, 1}, output_of(gradient));
  context_.for_each_row(piece.count, [&](std::int64_t i) {
    const std::int64_t row = rows.rows[static_cast<std::size_t>(piece.first + i)];
    float* const its = gradient.row(i).data();
    context_.compute.vector->rms_norm_gradient({.x = rows.x.row(row).data(),
                                                .weight = weights_.final_norm.data(),
                                                .epsilon = context_.config.epsilon,
                                                .n = rows.x.cols()},
                                               its, its);
  });
}

}  // namespace moesaic
