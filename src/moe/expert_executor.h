#pragma once

#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "kernels/grouped_gemm.h"

namespace moesaic {

/// The packed matrices of one local expert.
struct ExpertWeights {
  PackedMatrix gate;  // [intermediate, hidden]
  PackedMatrix up;    // [intermediate, hidden]
  PackedMatrix down;  // [hidden, intermediate]
};

/// Scratch memory of ExpertExecutor::forward, shared by the layers of a model.
struct ExpertScratch {
  std::vector<MlpGroup> groups;
};

/// Runs the local experts of one layer: down(silu(gate(x)) * up(x)). Products are f32; the gated
/// activations are rounded to `element` between the two products.
class ExpertExecutor {
 public:
  ExpertExecutor(std::span<const ExpertWeights> experts, RowSource::Element element)
      : experts_(experts.begin(), experts.end()), element_(element) {}

  /// `rows` [outputs]: the input row of each output, of `element`s, ordered by slot; slot s has
  /// outputs [slot_begin[s], slot_begin[s + 1]). Writes outputs [outputs, hidden], not yet
  /// weighted.
  void forward(std::span<const std::byte* const> rows, std::span<const std::int64_t> slot_begin,
               MatrixView<float> outputs, GroupedGemm& gemm, ExpertScratch& scratch) const;

 private:
  std::vector<ExpertWeights> experts_;
  RowSource::Element element_;
};

}  // namespace moesaic
