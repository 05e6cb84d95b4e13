#pragma once

#include <vector>

#include "kernels/grouped_gemm.h"
#include "src/model/batch.h"
#include "src/model/linear.h"
#include "src/model/model_weights.h"
#include "src/model/rotary.h"

namespace moesaic {

/// Causal grouped-query attention over the caches of a batch's sequences.
class Attention {
 public:
  Attention(const ModelConfig& config, Precision precision, const Compute& compute);
  ~Attention();

  /// Computes what all layers share for this batch: the rotary angles of its tokens and how its
  /// sequences are shared out over the threads.
  void begin(const Batch& batch);
  /// `batch` is that of the last begin(). `x` [rows, hidden] normed; `y` [rows, hidden] is
  /// overwritten with the output projection. Stores the keys and values of the batch's tokens in
  /// their caches (the caches' sizes stay).
  void forward(std::int64_t layer, const LayerWeights& weights, const Batch& batch,
               MatrixView<const float> x, MatrixView<float> y, Linear& linear);

 private:
  struct Scratch;
  /// Tokens [first, first + count) of a sequence and the query heads of one KV head.
  struct Task {
    std::size_t sequence;  // of the batch
    std::int64_t kv_head;
    std::int64_t first;
    std::int64_t count;
  };
  void plan_tasks(const Batch& batch);
  void prepare_token(std::int64_t layer, const LayerWeights& weights, const BatchToken& token,
                     std::int64_t row);
  void attend(std::int64_t layer, const BatchSequence& sequence, const Task& task,
              Scratch& scratch);

  const ModelConfig& config_;
  Compute compute_;
  const AttentionKernel& kernel_;
  Rotary rotary_;
  std::vector<Task> tasks_;
  Buffer<float> cosines_;         // [rows, rotary half]
  Buffer<float> sines_;           // [rows, rotary half]
  Buffer<float> qkv_;             // [rows, q_width + 2 kv_width]
  Buffer<float> attended_;        // [rows, q_width]
  std::vector<Scratch> scratch_;  // one a worker
};

}  // namespace moesaic
