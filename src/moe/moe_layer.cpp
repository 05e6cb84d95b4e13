#include "src/moe/moe_layer.h"

#include <algorithm>
#include <cstring>

namespace moesaic {
namespace {

constexpr std::int64_t kTokensPerTask = 8;

}  // namespace

void MoeLayer::route(MatrixView<const float> x, GroupedGemm& gemm, MoeWorkspace& work,
                     PhaseTimes& times) {
  {
    const PhaseScope scope(times, Phase::route);
    router_.route(x, gemm, work.routing);
  }
  const PhaseScope scope(times, Phase::dispatch);
  work.rows.resize(x.rows());
  compute_.pool->for_each(x.rows(), kTokensPerTask, [&](std::int64_t token) {
    const std::span<const float> from = x.row(token);
    std::byte* const to = work.rows.activations(token);
    if (element_ == RowSource::Element::bf16) {
      compute_.vector->to_bf16(from.data(), x.cols(), reinterpret_cast<BFloat16*>(to));
    } else {
      std::memcpy(to, from.data(), from.size_bytes());
    }
  });
  work.rows.set_experts(work.routing);
}

void MoeLayer::execute_and_combine(MatrixView<float> y, GroupedGemm& gemm, MoeWorkspace& work,
                                   PhaseTimes& times) {
  const ExecutePlan& plan = work.exchange.finish_dispatch(work.rows, work.routing, times);
  const auto num_outputs = static_cast<std::int64_t>(plan.output_sources.size());
  work.outputs.reserve(num_outputs * y.cols());
  const MatrixView<float> outputs = work.outputs.matrix(num_outputs, y.cols());
  {
    const PhaseScope scope(times, Phase::experts);
    executor_.forward(work.exchange.output_rows(), plan.slot_begin, outputs, gemm,
                      work.expert_scratch);
  }
  const auto returned = static_cast<std::int64_t>(plan.return_outputs.size());
  const std::int64_t sent = work.exchange.rows_sent();
  work.load.rows += num_outputs;
  work.load.rows_sent += sent;
  work.load.bytes_sent += sent * work.rows.row_bytes() + returned * y.cols() * 4;

  work.exchange.combine(outputs, times);
  const PhaseScope scope(times, Phase::combine);
  const Routing& routing = work.routing;
  compute_.pool->for_each(y.rows(), kTokensPerTask, [&](std::int64_t token) {
    const std::span<float> sum = y.row(token);
    std::ranges::fill(sum, 0.0F);
    for (std::int64_t k = 0; k < routing.topk; ++k) {
      const std::int64_t choice = token * routing.topk + k;
      compute_.vector->add_scaled(work.exchange.result(choice),
                                  routing.weights[static_cast<std::size_t>(choice)], y.cols(),
                                  sum.data());
    }
  });
}

}  // namespace moesaic
