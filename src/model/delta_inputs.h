#pragma once

#include "base/matrix_view.h"
#include "src/model/delta_kind.h"

namespace moesaic {

/// What lies between the projections of a gated delta net and its recurrence: the convolution,
/// units of queries and keys, decays and rates; and the norm behind it. Keeps what it makes until
/// the next pass.
class DeltaInputs {
 public:
  /// Both must outlive this.
  DeltaInputs(const DeltaConfig& config, LayerContext& context)
      : config_(config), context_(context) {}

  /// Room for the rows of a pass.
  void reserve(std::int64_t rows);
  /// Of a row's rates and steps as projected.
  void find_rates(const WeightSet& weights, const float* projected, std::int64_t row);

  /// Rows of a sequence, as projected, of one head.
  struct Rows {
    MatrixView<const float> projected;  // [rows of the pass, projected_width]
    std::int64_t first_row = 0;
    std::int64_t num_rows = 0;
    float* before = nullptr;  // as DeltaConvolution, of the head's channels
    std::int64_t before_stride = 0;
    float* factors = nullptr;  // [num_rows] of queries and keys: of their units; or null
  };
  /// `head`: DeltaConfig::convolved().
  void convolve(const WeightSet& weights, const DeltaHead& head, const Rows& rows);

  /// [rows, 2 value_heads]: rates, then decays.
  [[nodiscard]] float* rates(std::int64_t row) const {
    return rates_.data() + row * 2 * config_.value_heads;
  }
  /// Convolved rows of a head from `row` on, one behind the other.
  [[nodiscard]] float* rows_of(const DeltaHead& head, std::int64_t row) const {
    return channels_.data() + head.channel * rows_ + row * head.width;
  }
  /// The recurrence of a value head over convolved rows, without its state and results.
  [[nodiscard]] DeltaRule rule(std::int64_t value_head, const SampleRange& rows) const;
  /// The end of a row: results [value_width] normed and gated, in place.
  void finish(const WeightSet& weights, const float* projected, float* results) const;
  /// Of DeltaKernels::scale_to_unit.
  [[nodiscard]] float unit_scale(const DeltaHead& head) const;

 private:
  const DeltaConfig& config_;
  LayerContext& context_;
  std::int64_t rows_ = 0;
  Buffer<float> rates_;
  Buffer<float> channels_;  // of each head [rows, its width], so that a head's rows lie together
};

}  // namespace moesaic
