#pragma once

#include <cstdint>
#include <memory>

#include "base/buffer.h"
#include "kernels/transposed_gemm.h"
#include "launch/shapes/layer_copies.h"
#include "launch/shapes/layer_routing.h"
#include "launch/shapes/shape_point.h"
#include "launch/study/point_job.h"

namespace moesaic {

/// One rank's part of a layer of random weights and its tokens. An expert's weights follow from its
/// id and a token's numbers from its place among all ranks' tokens, whichever rank has them: so do
/// the results.
class ShapeLayer {
 public:
  /// What it is made of; all of it outlives the layer.
  struct Parts {
    const ShapePoint& point;
    const LayerRouting& routing;  // of all ranks' tokens
    const ModelPlacement& placement;
    int rank;  // among those that share the experts
    const Compute& compute;
  };
  explicit ShapeLayer(const Parts& parts);

  /// Passes of this layer. `experts`: ranks that share the experts; it outlives the result.
  [[nodiscard]] std::unique_ptr<PointWork> work_over(Communicator& experts);
  /// Throws Error{internal} if the last pass of `work` chose other experts than it was to choose.
  void check(const PointWork& work) const;
  /// [pass tokens, hidden] of the last pass.
  [[nodiscard]] MatrixView<const float> results() const {
    return outputs_.matrix(point_.pass_tokens, point_.shape.hidden);
  }

 private:
  class Work;
  [[nodiscard]] MatrixView<float> inputs() const {
    return inputs_.matrix(point_.pass_tokens, point_.shape.hidden);
  }

  const ShapePoint& point_;
  const LayerRouting& routing_;
  const ModelPlacement& placement_;
  std::int64_t first_token_;
  Buffer<std::byte> memory_;
  LayerCopies layer_;
  TransposedGemm transposed_;  // no layer is without; its forward pass does not use it
  Buffer<float> inputs_;
  Buffer<float> outputs_;
};

}  // namespace moesaic
