#pragma once

#include "kernels/grouped_gemm.h"
#include "kernels/transposed_gemm.h"
#include "src/moe/moe_options.h"
#include "src/parallel/expert_nodes.h"
#include "src/parallel/expert_placement.h"
#include "src/parallel/phase_times.h"

namespace moesaic {

/// What the MoE layers of one model share; all of it outlives them.
struct MoeContext {
  Communicator& experts;  // the expert-parallel group
  const ModelPlacement& placement;
  GroupedGemm& gemm;
  TransposedGemm& transposed;
  PhaseTimes& times;
  MoeOptions options{};
  const ExpertNodes* nodes = nullptr;  // whose ranks add theirs, with Combine::fast, or null

  /// Whether each rank adds its results of a token.
  [[nodiscard]] bool adds_parts() const noexcept { return options.combine == Combine::fast; }
};

}  // namespace moesaic
