#pragma once

#include <cstdint>

#include "kernels/vector_kernels.h"
#include "src/model/gqa_kind.h"

namespace moesaic {

/// What lies between the projections of a token and attention: norms of queries and keys, clipping,
/// rotary embedding; and the gates of its results. Rows are [row_width]: queries, keys, values;
/// with gates before them, [projected_width].
class GqaHeads {
 public:
  /// Both must outlive this.
  GqaHeads(const GqaConfig& config, const VectorKernels& vector)
      : config_(config), vector_(vector) {}

  /// A row as projected [projected_width], in place: from the queries and gates of each head to all
  /// gates, then all queries. `scratch` [2 gate_width].
  void part_gates(float* row, float* scratch) const;
  /// The other way round, of a gradient.
  void join_gates(float* row, float* scratch) const;
  /// results = attended * sigmoid(gates), all [gate_width]; gates become their sigmoids. `results`
  /// may be `attended`.
  void apply_gates(float* gates, const float* attended, float* results) const;
  /// Of gates that are sigmoids: these become the loss's gradient by what the sigmoids are of, and
  /// `gradient`, by results, becomes that by what is attended.
  void pass_back_gates(float* gates, const float* attended, float* gradient) const;

  /// A projected row, in place.
  void prepare(const WeightSet& weights, const RotaryAngles& angles, float* row) const;

  /// One row on its way back.
  struct Backward {
    const float* projected;  // [row_width] as prepare() got it
    float* scratch;          // [row_width] overwritten
    float* gradient;  // [row_width] by what prepare() made of it; becomes that by `projected`
  };
  void pass_back(const WeightSet& weights, const RotaryAngles& angles, const Backward& row) const;

 private:
  /// Norms over all heads and clipping.
  void norm_whole(const WeightSet& weights, float* row) const;
  void clip(float* row) const;
  void pass_back_clip(const WeightSet& weights, const Backward& row) const;
  [[nodiscard]] RmsNorm norm(const WeightSet& weights, GqaWeight which, const float* x,
                             std::int64_t width) const;

  const GqaConfig& config_;
  const VectorKernels& vector_;
};

}  // namespace moesaic
