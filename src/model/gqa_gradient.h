#pragma once

#include <span>
#include <vector>

#include "base/buffer.h"
#include "src/model/attention_gradient_run.h"
#include "src/model/gqa_heads.h"
#include "src/model/layer_context.h"
#include "src/model/rotary_rows.h"
#include "src/model/stash.h"

namespace moesaic {

/// What grouped-query attention keeps of a forward pass besides its input.
class GqaStash : public Stash {
 public:
  explicit GqaStash(const GqaConfig& config) : config_(config) {}

  /// Makes room; contents are lost.
  void resize(std::int64_t rows);
  /// [rows, projected_width]: gates, then queries, keys and values before norms and rotary
  /// embedding.
  [[nodiscard]] MatrixView<float> projected() const;
  /// [rows, q_width], what the output projection gets, or gates are applied to.
  [[nodiscard]] MatrixView<float> attended() const;
  /// [rows, num_heads]
  [[nodiscard]] MatrixView<float> log_sum_exps() const;

  [[nodiscard]] std::int64_t bytes() const override;

 private:
  const GqaConfig& config_;
  std::int64_t rows_ = 0;
  Buffer<float> projected_;
  Buffer<float> attended_;
  Buffer<float> log_sum_exps_;
};

/// Passes gradients back through grouped-query attention of whole samples, from its results to its
/// input. Keeps its scratch memory between calls.
class GqaGradient {
 public:
  /// All must outlive this.
  GqaGradient(const GqaConfig& config, LayerContext& context, const AttentionKernel& kernel);

  /// `angles` of the rows of the pass. Uses `projected` and `mixed` of the context.
  void run(const WeightSet& weights, const RotaryRows& angles, const GqaStash& stash,
           const PartBackward& part);

 private:
  /// From the gradient of the layer's results to that of what is attended, in context_.mixed, and,
  /// in gradients_, of the gates.
  void pass_back_results(const WeightSet& weights, const GqaStash& stash, const PartBackward& part);
  /// Context_.projected: queries, keys and values as attention had them.
  void prepare(const WeightSet& weights, const RotaryRows& angles, const GqaStash& stash);
  void differentiate(const GqaStash& stash, std::span<const SampleRange> samples);
  [[nodiscard]] AttentionGradientArgs head_of(const GqaStash& stash, const SampleRange& sample,
                                              std::int64_t head) const;
  /// Adds the gradients of a row's keys and values that query heads have given.
  void add_parts(std::int64_t row) const;

  const GqaConfig& config_;
  LayerContext& context_;
  GqaHeads heads_;
  AttentionGradientRun attention_;
  Buffer<float> gradients_;    // [rows, projected_width]
  Buffer<float> key_parts_;    // [rows, q_width]: of every query head, where they share keys
  Buffer<float> value_parts_;  // [rows, q_width]
  std::vector<Buffer<float>> head_rows_;  // one a worker, of GqaHeads [projected_width]
};

}  // namespace moesaic
