#include "launch/study/shape_layer.h"

#include <algorithm>

#include "base/error.h"
#include "launch/shapes/cold_weights.h"

namespace moesaic {
namespace {

Buffer<std::byte> layer_memory(const ShapeLayer::Parts& parts) {
  const std::int64_t experts = parts.placement.of_layer(0).num_local_experts(parts.rank);
  return Buffer<std::byte>(layer_bytes(parts.point.shape, parts.point.layout, experts));
}

}  // namespace

class ShapeLayer::Work final : public PointWork {
 public:
  Work(ShapeLayer& layer, Communicator& experts)
      : layer_(layer),
        work_({experts, layer.placement_, layer.layer_.gemm(), layer.transposed_, times_},
              layer.point_.shape.hidden * element_bytes(layer.layer_.element()),
              layer.point_.shape.topk) {
    work_.enter_layer(0);
  }

  void run() override {
    MoeLayer& layer = layer_.layer_.copies().front().layer;
    const MatrixView<float> y =
        layer_.outputs_.matrix(layer_.point_.pass_tokens, layer_.point_.shape.hidden);
    for (std::int64_t pass = 0; pass < layer_.point_.passes; ++pass) {
      layer.begin(layer_.inputs(), work_);
      layer.end(y, work_);
    }
  }
  [[nodiscard]] PointCounts counts() const override {
    return {times_, work_.load, work_.expert_rows,
            work_.context.experts.row_counters().since(moved_before_)};
  }
  void reset_counts() override {
    times_ = {};
    work_.load = {};
    work_.expert_rows.clear();
    moved_before_ = work_.context.experts.row_counters();
  }
  [[nodiscard]] const std::vector<ExpertId>& chosen() const { return work_.routing.experts; }

 private:
  ShapeLayer& layer_;
  PhaseTimes times_;
  MoeWorkspace work_;
  RowCounters moved_before_;
};

ShapeLayer::ShapeLayer(const Parts& parts)
    : point_(parts.point),
      routing_(parts.routing),
      placement_(parts.placement),
      first_token_(parts.rank * point_.pass_tokens),
      memory_(layer_memory(parts)),
      layer_(point_.shape, point_.layout, placement_.of_layer(0).num_local_experts(parts.rank),
             {.memory = memory_.span(), .experts = placement_.of_layer(0).experts_of(parts.rank)},
             parts.compute),
      transposed_(parts.compute),
      inputs_(point_.pass_tokens * point_.shape.hidden),
      outputs_(point_.pass_tokens * point_.shape.hidden) {
  for (std::int64_t token = 0; token < point_.pass_tokens; ++token) {
    const auto seed = static_cast<std::uint64_t>(first_token_ + token) << 32U;
    std::ranges::copy(normal_numbers(point_.shape.hidden, 1, seed), inputs().row(token).begin());
    // One by one: what is written between logits then is the same for all.
    routing_.write_logits(first_token_ + token, inputs().row_range(token, 1));
  }
}

std::unique_ptr<PointWork> ShapeLayer::work_over(Communicator& experts) {
  return std::make_unique<Work>(*this, experts);
}

void ShapeLayer::check(const PointWork& work) const {
  const std::vector<ExpertId>& chosen = static_cast<const Work&>(work).chosen();
  const auto wanted =
      std::span(routing_.experts())
          .subspan(static_cast<std::size_t>(first_token_ * point_.shape.topk), chosen.size());
  require(std::ranges::equal(chosen, wanted), ErrorKind::internal,
          "the router chose other experts than it was to choose");
}

}  // namespace moesaic
