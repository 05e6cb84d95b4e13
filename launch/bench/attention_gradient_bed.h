#pragma once

#include "launch/bench/attention_bed.h"

namespace moesaic {

/// Attention's backward pass: random rows of samples of so many tokens, the gradients of which are
/// computed head by head on all threads, as the model does.
class AttentionGradientBed final : public MeasuredAttention {
 public:
  AttentionGradientBed(const AttentionForm& form, std::int64_t sample_rows)
      : form_(form), sample_rows_(sample_rows) {}

  /// `rows` tokens: whole samples, and a shorter one for what is left.
  void run(const AttentionKernel& kernel, std::int64_t rows, ThreadPool& pool) override;
  /// Of all three gradients of the first sample's first head, as AttentionBed's.
  [[nodiscard]] double error() const override;
  /// Multiplications and additions of the five products for keys that rows see.
  [[nodiscard]] double operations(std::int64_t rows) const override;
  /// Of what is read and written once.
  [[nodiscard]] double bytes(std::int64_t rows) const override;

 private:
  using Rows = Buffer<float>;  // [rows, heads * head_dim], in memory as the model's

  [[nodiscard]] std::int64_t width() const { return form_.heads * form_.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return form_.kv_heads * form_.head_dim; }
  [[nodiscard]] float scale() const;
  void fill(std::int64_t rows);
  /// Result and log-sum-exp of one row and head, in fp64.
  void forward(std::int64_t row, std::int64_t head);
  [[nodiscard]] double score(std::int64_t row, std::int64_t key, std::int64_t head) const;
  [[nodiscard]] AttentionGradientArgs args(std::int64_t sample, std::int64_t head);
  [[nodiscard]] std::int64_t first_of_sample(std::int64_t row) const {
    return row / sample_rows_ * sample_rows_;
  }

  AttentionForm form_;
  std::int64_t sample_rows_;
  std::int64_t rows_ = 0;                                      // of the last run
  Rows queries_, keys_, values_, results_, result_gradients_;  // keys and values of KV heads
  Rows log_sum_exps_;                                          // [rows, heads]
  Rows query_gradients_, key_gradients_, value_gradients_;     // of query heads
  std::vector<ByteBuffer> scratch_;                            // one a worker
};

}  // namespace moesaic
