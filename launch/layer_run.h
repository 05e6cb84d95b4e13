#pragma once

#include <memory>
#include <span>

#include "launch/layer_copies.h"
#include "launch/layer_parts.h"
#include "launch/layer_routing.h"
#include "launch/runtime.h"

namespace moesaic {

/// An MoE layer of one shape and format on all ranks, ready to be measured.
class LayerRun {
 public:
  /// `memory` has room for this rank's experts. `most_rows`: of one expert. All must outlive this.
  LayerRun(const Runtime& runtime, const LayerShape& shape, const Layout& layout,
           std::int64_t most_rows, std::span<std::byte> memory);

  /// Seconds of one pass of `tokens` tokens on each rank, from router to combine, until all ranks
  /// are done. Collective.
  [[nodiscard]] double measure(const LayerRouting& routing, std::int64_t tokens);
  /// Seconds of the same as the sum of its parts, of the rank that has the most. Collective.
  [[nodiscard]] double predict(const LayerRouting& routing, std::int64_t tokens);

  /// Packed bytes of one expert.
  [[nodiscard]] std::int64_t expert_bytes() const noexcept { return layer_.expert_bytes(); }

 private:
  double run_pass(const LayerRouting& routing, MatrixView<float> x, MatrixView<float> y);
  [[nodiscard]] std::int64_t first_token(std::int64_t tokens) const {
    return experts_->rank() * tokens;
  }

  const Runtime* runtime_;
  Communicator* experts_;  // the ranks that share the experts
  ExpertPlacement placement_;
  LayerCopies layer_;
  LayerParts parts_;
  GroupedGemm gemm_;
  MoeWorkspace work_;
  PhaseTimes times_;
  std::int64_t pass_ = 0;
};

}  // namespace moesaic
