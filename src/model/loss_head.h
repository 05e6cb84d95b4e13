#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "kernels/transposed_gemm.h"
#include "src/lora/matrix_rows.h"
#include "src/model/layer_context.h"
#include "src/model/model_config.h"
#include "src/model/model_weights.h"
#include "src/model/output_head.h"

namespace moesaic {

/// The end of the model when it is trained: final norm, output matrix and cross entropy, for a few
/// rows at a time, so that the logits of all are never there at once.
class LossHead {
 public:
  /// Whose logits it has at the same time, if nobody says.
  [[nodiscard]] static std::int64_t rows_at_a_time(std::int64_t vocab_size);

  /// All must outlive this. `most_rows`: whose logits are there at the same time.
  LossHead(const ModelConfig& config, const ModelWeights& weights, LayerContext& context,
           std::int64_t most_rows);
  LossHead(const ModelConfig& config, const ModelWeights& weights, LayerContext& context)
      : LossHead(config, weights, context, rows_at_a_time(config.vocab_size)) {}

  struct Rows {
    MatrixView<const float> x;              // [all rows, hidden] after the last layer
    std::span<const std::int64_t> rows;     // of x, that predict something
    std::span<const std::int32_t> targets;  // [rows] what each of them is to predict
  };
  /// losses[i] = log(sum exp(logits)) - logits[target] of rows[i]. If `dx` is not empty, it is
  /// [rows, hidden] and gets the gradient of the sum of all losses.
  void run(const Rows& rows, std::span<float> losses, MatrixView<float> dx);

 private:
  struct Piece {
    std::int64_t first = 0;  // of the rows that predict
    std::int64_t count = 0;
  };
  void make_logits(const Rows& rows, const Piece& piece);
  void make_losses(const Rows& rows, const Piece& piece, std::span<float> losses) const;
  void make_gradients(const Rows& rows, const Piece& piece, MatrixView<float> dx);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  LayerContext& context_;
  std::int64_t most_rows_;
  OutputHead head_;
  TransposedGemm transposed_;
  Buffer<float> normed_;  // [piece, hidden]
  Buffer<float> logits_;  // [piece, vocab], then their gradient
  MatrixRows logit_rows_;
};

}  // namespace moesaic
