#include "launch/layer_run.h"

#include <algorithm>

#include "launch/bench_timing.h"
#include "launch/gather.h"
#include "launch/roofs.h"
#include "src/base/error.h"

namespace moesaic {
namespace {

/// Of the time for a line, what each part gets.
constexpr double kPartShare = 0.125;

/// [tokens, hidden]
Buffer<float> random_tokens(std::int64_t tokens, std::int64_t hidden) {
  Buffer<float> x(tokens * hidden);
  std::ranges::copy(normal_numbers(tokens * hidden, 1, 4), x.data());
  return x;
}

}  // namespace

LayerRun::LayerRun(const Runtime& runtime, const LayerShape& shape, const Layout& layout,
                   std::int64_t most_rows, std::span<std::byte> memory)
    : runtime_(&runtime),
      experts_(&runtime.grid().experts()),
      placement_(shape.experts, experts_->size()),
      layer_(shape, layout, placement_.num_local_experts(experts_->rank()), memory,
             runtime.compute()),
      parts_(layer_, most_rows, runtime.compute(), runtime.options().seconds * kPartShare),
      gemm_(runtime.compute()),
      work_(*experts_, placement_, shape.hidden * element_bytes(layer_.element()), shape.topk) {}

double LayerRun::measure(const LayerRouting& routing, std::int64_t tokens) {
  const std::int64_t hidden = layer_.shape().hidden;
  const Buffer<float> x = random_tokens(tokens, hidden);
  const Buffer<float> y(tokens * hidden);
  return lower_quartile(repeat(runtime_->options().seconds, [&] {
    return run_pass(routing, x.matrix(tokens, hidden), y.matrix(tokens, hidden));
  }));
}

double LayerRun::run_pass(const LayerRouting& routing, MatrixView<float> x, MatrixView<float> y) {
  // Passes go through the copies, and then on to other experts.
  const std::int64_t copies = std::ssize(layer_.copies());
  const std::int64_t round = pass_ / copies;
  MoeLayer& layer = layer_.copies()[static_cast<std::size_t>(pass_++ % copies)].layer;
  const LayerRouting now = routing.rotated(placement_, round * layer_.shape().topk);
  now.write_logits(first_token(x.rows()), x);
  const double seconds =
      time_together(runtime_->world(), [&] { layer.forward(x, y, gemm_, work_, times_, [] {}); });
  const auto wanted = now.experts().begin() + first_token(x.rows()) * layer_.shape().topk;
  require(
      std::ranges::equal(work_.routing.experts, std::span(wanted, work_.routing.experts.size())),
      ErrorKind::internal, "the router chose other experts than it was to choose");
  return seconds;
}

double LayerRun::predict(const LayerRouting& routing, std::int64_t tokens) {
  const std::int64_t hidden = layer_.shape().hidden;
  const Buffer<float> x = random_tokens(tokens, hidden);
  routing.write_logits(first_token(tokens), x.matrix(tokens, hidden));
  double seconds = parts_.router(x.matrix(tokens, hidden)) + parts_.combine(tokens);
  const std::vector<std::int64_t> rows = routing.rows_of_experts();
  const std::int64_t first = placement_.experts_start_idx(experts_->rank());
  for (std::int64_t expert = first; expert < first + layer_.local_experts(); ++expert) {
    const std::int64_t own = rows[static_cast<std::size_t>(expert)];
    if (own > 0) seconds += parts_.expert(own);
  }
  const std::vector<double> all = gather_values(runtime_->world(), seconds);
  return *std::ranges::max_element(all);
}

}  // namespace moesaic
