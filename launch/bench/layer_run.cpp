#include "launch/bench/layer_run.h"

#include <algorithm>

#include "base/error.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/roofs.h"
#include "launch/job/gather.h"
#include "launch/job/session.h"

namespace moesaic {
namespace {

/// Of rows that travel as codes, as in a model: between nodes, for experts that take no more.
std::optional<Int8Rows> row_codes(const Runtime& runtime, const LayerCopies& layer) {
  const Compute compute = runtime.compute();
  const auto scales = int8_scales({.layout = layer.layout()}, compute.int4_activations);
  if (!scales || !expert_group(runtime).options.int8_rows) return {};
  return Int8Rows(layer.shape().hidden, *scales);
}

}  // namespace

LayerRun::LayerRun(const Runtime& runtime, const LayerShape& shape, const Layout& layout,
                   std::int64_t most_rows, const LayerPlace& place)
    : runtime_(&runtime),
      experts_(&runtime.grid().experts()),
      placement_(ExpertPlacement(shape.experts, experts_->size())),
      at_work_(place.at_work),
      layer_(shape, layout, placement_.of_layer(0).num_local_experts(experts_->rank()), place,
             runtime.compute()),
      parts_(layer_, most_rows, runtime.compute()),
      transposed_(runtime.compute()),
      codes_(row_codes(runtime, layer_)),
      work_({.experts = *experts_,
             .placement = placement_,
             .gemm = layer_.gemm(),
             .transposed = transposed_,
             .times = times_,
             .options = {.int8_rows = codes_.has_value()}},
            shape.hidden * element_bytes(layer_.element()), shape.topk) {
  if (!codes_) return;
  for (LayerCopies::Copy& copy : layer_.copies()) copy.layer.take_int8(*codes_);
}

LayerCopies::Copy& LayerRun::next_copy() {
  return layer_.copies()[static_cast<std::size_t>(pass_++ % layer_.num_copies())];
}

LayerRouting LayerRun::next_routing(const LayerRouting& routing) const {
  const std::int64_t round = pass_ / layer_.num_copies();
  return routing.rotated(placement_.of_layer(0), round * layer_.shape().topk);
}

LayerTimes LayerRun::measure(const LayerRouting& routing, std::int64_t tokens) {
  const std::int64_t hidden = layer_.shape().hidden;
  const Buffer<float> inputs(tokens * hidden);
  std::ranges::copy(normal_numbers(tokens * hidden, 1, 4), inputs.data());
  const Buffer<float> outputs(tokens * hidden);
  const MatrixView<float> x = inputs.matrix(tokens, hidden);
  // Rotation gives other experts as many rows on the same ranks: one exchange stands for all.
  ExchangeBed bed(*experts_, {.shape = layer_.shape(),
                              .placement = placement_.of_layer(0),
                              .routing = routing,
                              .element = layer_.element(),
                              .codes = codes_});
  std::vector<double> parts;
  std::vector<double> exchanges;
  std::vector<double> on_gpu;
  std::vector<double> on_cpu;
  const MatrixView<float> y = outputs.matrix(tokens, hidden);
  const std::vector<double> layers = repeat(runtime_->options().seconds, [&] {
    parts.push_back(run_parts(next_routing(routing), x));
    exchanges.push_back(run_exchange(bed));
    const double seconds = run_layer(next_routing(routing), x, y);
    if (at_work_ == nullptr) return seconds;
    on_gpu.push_back(run_half({.on_gpu = true, .on_cpu = false}, routing, x, y));
    on_cpu.push_back(run_half({.on_gpu = false, .on_cpu = true}, routing, x, y));
    return seconds;
  });
  const auto typical = [&](std::vector<double>& others) {
    if (others.empty()) return std::numeric_limits<double>::quiet_NaN();
    others.erase(others.begin(), others.end() - std::ssize(layers));  // the warm-up
    return lower_quartile(others);
  };
  return {.layer = lower_quartile(layers),
          .parts = typical(parts),
          .exchange = typical(exchanges),
          .on_gpu = typical(on_gpu),
          .on_cpu = typical(on_cpu)};
}

double LayerRun::run_half(const ExpertsAtWork& half, const LayerRouting& routing,
                          MatrixView<float> x, MatrixView<float> y) {
  *at_work_ = half;
  const double seconds = run_layer(next_routing(routing), x, y);
  *at_work_ = {};
  return seconds;
}

double LayerRun::run_layer(const LayerRouting& routing, MatrixView<float> x, MatrixView<float> y) {
  const std::int64_t first_token = experts_->rank() * x.rows();
  routing.write_logits(first_token, x);
  MoeLayer& layer = next_copy().layer;
  const double seconds = time_together(runtime_->world(), [&] {
    layer.begin(x, work_);
    layer.end(y, work_);
  });
  const std::span wanted = std::span(routing.experts())
                               .subspan(static_cast<std::size_t>(first_token * work_.routing.topk),
                                        work_.routing.experts.size());
  require(std::ranges::equal(work_.routing.experts, wanted), ErrorKind::internal,
          "the router chose other experts than it was to choose");
  return seconds;
}

double LayerRun::run_parts(const LayerRouting& routing, MatrixView<float> x) {
  routing.write_logits(experts_->rank() * x.rows(), x);
  const std::vector<std::int64_t> rows = routing.rows_of_experts();
  const auto own = std::span(rows).subspan(
      static_cast<std::size_t>(placement_.of_layer(0).experts_start_idx(experts_->rank())),
      static_cast<std::size_t>(layer_.local_experts()));
  LayerCopies::Copy& copy = next_copy();
  runtime_->world().barrier();
  return slowest(time_once([&] { parts_.run(copy, x, own); }));
}

double LayerRun::run_exchange(ExchangeBed& bed) {
  runtime_->world().barrier();
  const ExchangeBed::Times times = bed.exchange();
  return slowest(times.dispatch + times.combine);
}

double LayerRun::slowest(double seconds) const {
  const std::vector<double> all = gather_values(runtime_->world(), seconds);
  return *std::ranges::max_element(all);
}

}  // namespace moesaic
