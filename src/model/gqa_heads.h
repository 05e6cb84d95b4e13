#pragma once

#include <cstdint>

#include "kernels/vector_kernels.h"
#include "src/model/gqa_kind.h"

namespace moesaic {

/// What lies between the projections of a token and attention: norms of queries and keys, clipping,
/// rotary embedding. Rows are [row_width]: queries, keys, values.
class GqaHeads {
 public:
  /// Both must outlive this.
  GqaHeads(const GqaConfig& config, const VectorKernels& vector)
      : config_(config), vector_(vector) {}

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
