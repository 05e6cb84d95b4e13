#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "kernels/transposed_gemm.h"
#include "launch/bench/exchange_bed.h"
#include "launch/bench/layer_parts.h"
#include "launch/job/runtime.h"
#include "launch/shapes/layer_copies.h"
#include "launch/shapes/layer_routing.h"

namespace moesaic {

/// Seconds of one pass, until all ranks are done.
struct LayerTimes {
  double layer = 0;     // from router to combine
  double parts = 0;     // the parts one by one, of the rank that takes the longest
  double exchange = 0;  // rows there and results back without experts, of the slowest rank
  // The layer while experts of one place alone compute; NaN where there are none elsewhere.
  double on_gpu = std::numeric_limits<double>::quiet_NaN();
  double on_cpu = std::numeric_limits<double>::quiet_NaN();
};

/// An MoE layer of one shape and format on all ranks, ready to be measured.
class LayerRun {
 public:
  /// `place` has room for this rank's experts. `most_rows`: of one expert. All must outlive this.
  LayerRun(const Runtime& runtime, const LayerShape& shape, const Layout& layout,
           std::int64_t most_rows, const LayerPlace& place);

  /// Measures the layer, its parts and its exchange in turn, so that what disturbs one disturbs the
  /// other, with `tokens` tokens on each rank. Collective.
  [[nodiscard]] LayerTimes measure(const LayerRouting& routing, std::int64_t tokens);

  /// Packed bytes of one expert.
  [[nodiscard]] std::int64_t expert_bytes() const noexcept { return layer_.expert_bytes(); }

 private:
  /// Passes go through the copies, and then on to other experts.
  LayerCopies::Copy& next_copy();
  [[nodiscard]] LayerRouting next_routing(const LayerRouting& routing) const;
  double run_layer(const LayerRouting& routing, MatrixView<float> x, MatrixView<float> y);
  double run_half(const ExpertsAtWork& half, const LayerRouting& routing, MatrixView<float> x,
                  MatrixView<float> y);
  double run_parts(const LayerRouting& routing, MatrixView<float> x);
  double run_exchange(ExchangeBed& bed);
  /// The time of the slowest rank.
  [[nodiscard]] double slowest(double seconds) const;

  const Runtime* runtime_;
  Communicator* experts_;     // the ranks that share the experts
  ModelPlacement placement_;  // of one layer
  ExpertsAtWork* at_work_;    // null: all experts are on CPUs, or all on GPUs
  LayerCopies layer_;
  LayerParts parts_;
  TransposedGemm transposed_;  // no layer is without; its forward pass does not use it
  PhaseTimes times_;
  std::optional<Int8Rows> codes_;  // in which rows travel, or none
  MoeWorkspace work_;
  std::int64_t pass_ = 0;
};

}  // namespace moesaic
