#pragma once

#include "base/buffer.h"
#include "src/model/attention_gradient_run.h"
#include "src/model/mla_inputs.h"
#include "src/model/rotary_rows.h"
#include "src/model/stash.h"

namespace moesaic {

/// What latent attention keeps of a forward pass besides its input.
class MlaStash : public Stash {
 public:
  explicit MlaStash(const MlaConfig& config) : config_(config) {}

  /// Makes room; contents are lost.
  void resize(std::int64_t rows);
  /// [rows, query_rank], before the norm.
  [[nodiscard]] MatrixView<float> inner() const;
  /// [rows, heads * query_dim], before the rotation.
  [[nodiscard]] MatrixView<float> queries() const;
  /// [rows, key_dim], before norm and rotation.
  [[nodiscard]] MatrixView<float> latents() const;
  /// [latent] of a row and head: what attention gives.
  [[nodiscard]] HeadRows<float> attended() const;
  /// [rows, heads * value_dim], what the output projection gets.
  [[nodiscard]] MatrixView<float> mixed() const;
  /// One of a row and head.
  [[nodiscard]] HeadRows<float> log_sum_exps() const;

  [[nodiscard]] std::int64_t bytes() const override;

 private:
  const MlaConfig& config_;
  std::int64_t rows_ = 0;
  Buffer<float> all_;  // one matrix behind the other
};

/// Passes gradients back through latent attention of whole samples, from its results to its input:
/// some heads at a time, whose gradients of latents are added in ascending order. Keeps its scratch
/// memory between calls.
class MlaGradient {
 public:
  /// All must outlive this; `products` are also the forward pass's.
  MlaGradient(const MlaConfig& config, LayerContext& context, const AttentionKernel& kernel,
              HeadProducts& products);

  /// `angles` of the rows of the pass. Uses `mixed` of the context.
  void run(const WeightSet& weights, const RotaryRows& angles, const MlaStash& stash,
           const PartBackward& part);

 private:
  /// Matrices of the heads that are at work, [heads * rows, width], a head below the other.
  struct Heads {
    MatrixView<float> queries;              // [., key_dim] as they meet latents
    MatrixView<float> result_gradients;     // [., latent]
    MatrixView<float> query_gradients;      // [., key_dim]
    MatrixView<float> key_gradients;        // [., key_dim]
    MatrixView<float> value_gradients;      // [., latent]
    MatrixView<float> projected_gradients;  // [., nope_dim] by queries as they are projected
  };
  struct Pass {
    const WeightSet& weights;
    const RotaryRows& angles;
    const MlaStash& stash;
    const PartBackward& part;

    [[nodiscard]] std::int64_t rows() const { return part.x.rows(); }
  };

  void reserve(std::int64_t rows);
  /// Keys and inner query rows as attention had them.
  void prepare(const Pass& pass);
  void pass_back_heads(const Pass& pass, const HeadRange& heads);
  [[nodiscard]] Heads matrices_of(const HeadRange& heads) const;
  void find_queries(const Pass& pass, const HeadRange& heads);
  /// Of head heads.first + i.
  [[nodiscard]] AttentionGradientArgs args_of(const Pass& pass, const HeadRange& heads,
                                              const SampleRange& sample, std::int64_t i) const;
  /// What the heads give for a row's queries, and for its latent and key.
  void collect(const Pass& pass, const HeadRange& heads, std::int64_t row) const;
  /// [rows, heads * value_dim] by what the output projection gets.
  [[nodiscard]] MatrixView<float> mixed_gradients(std::int64_t rows) const;
  /// `x`: what the norm got.
  void norm_gradient(const Weight& weight, std::span<const float> x,
                     std::span<float> gradient) const;
  void pass_back_queries(const Pass& pass);
  void pass_back_latents(const Pass& pass);

  const MlaConfig& config_;
  LayerContext& context_;
  HeadProducts& products_;
  MlaInputs inputs_;
  AttentionGradientRun attention_;
  Buffer<float> keys_;              // [rows, key_dim]
  Buffer<float> inner_;             // [rows, query_rank]
  Buffer<float> inner_gradients_;   // [rows, query_rank]
  Buffer<float> query_gradients_;   // [rows, heads * query_dim]
  Buffer<float> latent_gradients_;  // [rows, key_dim]
  Buffer<float> input_gradients_;   // [rows, hidden] of the way of the latents
  Buffer<float> heads_;             // of Heads
};

}  // namespace moesaic
