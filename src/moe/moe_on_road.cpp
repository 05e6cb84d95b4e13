// The halves of an MoE layer for batches that stay on GPUs between going up and coming down: over
// the host travel the words of rows alone, with which ranks plan.

#include "src/moe/chosen_inputs.h"
#include "src/moe/device_road.h"
#include "src/moe/moe_layer.h"

namespace moesaic {

/// Of one rank's experts slots are the ids.
bool MoeLayer::goes_by_road(const Routing& routing) const {
  if (road_ == nullptr || road_->connects_ranks()) return road_ != nullptr;
  const DeviceExperts* const there = experts_->on_device();
  return there != nullptr && there->has(routing.experts);
}

void MoeLayer::begin_on_road(MatrixView<const float> x, MoeWorkspace& work) const {
  {
    const PhaseScope scope(work.context.times, Phase::dispatch);
    std::byte* const rows = road_->rows(x.rows(), x.cols());
    compute_.pool->for_each_row(x.rows(), [&](std::int64_t token) {
      rows_.write_numbers(x.row(token), rows + token * rows_.row_bytes());
    });
    work.rows.resize(x.rows(), 0);
  }
  work.dispatch = send_rows(work);
}

void MoeLayer::execute_on_road(MoeWorkspace& work) const {
  {
    const PhaseScope scope(work.context.times, Phase::wait);
    work.dispatch.wait();
  }
  {
    const PhaseScope scope(work.context.times, Phase::dispatch);
    if (!road_->plans(work.routing.num_tokens)) {
      work.exchange.finish_plan(work.routing, work.dispatch, work.plan);
      work.inputs.experts.clear();
      if (road_->connects_ranks() && experts_->plans_itself())
        (void)list_choices(work.context.experts, work.dispatch, work);
    }
    work.dispatch = {};
  }
  const PhaseScope scope(work.context.times, Phase::experts);
  if (road_->plans(work.routing.num_tokens)) {
    road_->start(work.routing, *experts_->on_device());
    work.load.rows += std::ssize(work.routing.experts);
    return;
  }
  road_->start(work.routing, work.plan, {experts_->on_device(), work.inputs.experts});
  work.load.rows += work.plan.execute.num_outputs();
  work.load.bytes_sent += std::ssize(work.plan.send.send_tokens) * rows_.row_bytes() +
                          std::ssize(work.plan.execute.return_outputs) * router_.hidden() * 4;
}

void MoeLayer::end_on_road(MatrixView<float> y, const MoeWorkspace& work) const {
  const PhaseScope scope(work.context.times, Phase::experts);
  road_->finish(y);
}

}  // namespace moesaic
