#include "src/moe/moe_layer.h"

#include <algorithm>
#include <cstring>

namespace moesaic {
namespace {

constexpr std::int64_t kTokensPerTask = 8;

void count_load(MoeWorkspace& work, std::int64_t result_bytes) {
  const auto returned = static_cast<std::int64_t>(work.plan.execute.return_outputs.size());
  const auto sent = static_cast<std::int64_t>(work.plan.send.send_tokens.size());
  work.load.rows += work.plan.execute.num_outputs();
  work.load.rows_sent += sent;
  work.load.bytes_sent += sent * work.rows.row_bytes() + returned * result_bytes;
}

}  // namespace

void MoeLayer::begin(MatrixView<const float> x, MoeWorkspace& work) {
  PhaseTimes& times = work.context.times;
  {
    const PhaseScope scope(times, Phase::route);
    router_.route(x, work.context.gemm, work.router_scratch, work.routing);
    if (work.keep != nullptr) keep_probabilities(work);
    if (work.statistics != nullptr) {
      router_.add_statistics(work.routing, work.router_scratch, *work.statistics);
    }
  }
  {
    const PhaseScope scope(times, Phase::dispatch);
    write_activations(x, work.rows);
    work.rows.set_experts(work.routing);
  }
  const PhaseScope scope(times, Phase::wait);
  work.exchange.plan_sends(work.routing, work.plan);
  work.dispatch = work.exchange.dispatch(work.rows, work.plan, work.label.at("rows"));
  work.has_executed = false;
}

void MoeLayer::write_activations(MatrixView<const float> x, WireRows& rows) const {
  rows.resize(x.rows());
  compute_.pool->for_each(x.rows(), kTokensPerTask, [&](std::int64_t token) {
    const std::span<const float> from = x.row(token);
    std::byte* const to = rows.activations(token);
    if (element_ == RowSource::Element::bf16) {
      compute_.vector->to_bf16(from.data(), x.cols(), reinterpret_cast<BFloat16*>(to));
    } else {
      std::memcpy(to, from.data(), from.size_bytes());
    }
  });
}

void MoeLayer::keep_probabilities(MoeWorkspace& work) const {
  if (!router_.needs_probabilities()) return;
  const std::int64_t count = work.routing.num_tokens * router_.num_experts();
  work.keep->probabilities.reserve(count);
  std::copy_n(work.router_scratch.scores.data(), count, work.keep->probabilities.data());
}

void MoeLayer::keep_received(MoeWorkspace& work) {
  const std::int64_t count = work.dispatch.num_received();
  const std::int64_t bytes = work.rows.activation_bytes();
  work.keep->received.reserve(count * bytes);
  for (std::int64_t row = 0; row < count; ++row) {
    std::memcpy(work.keep->received.data() + row * bytes,
                work.dispatch.source(work.routing.num_tokens + row),
                static_cast<std::size_t>(bytes));
  }
}

void MoeLayer::execute(MoeWorkspace& work) {
  PhaseTimes& times = work.context.times;
  {
    const PhaseScope scope(times, Phase::wait);
    work.dispatch.wait();
  }
  const ExecutePlan& plan = work.plan.execute;
  {
    const PhaseScope scope(times, Phase::dispatch);
    work.exchange.finish_plan(work.routing, work.rows, work.dispatch, work.plan);
    work.output_rows.clear();
    for (const std::int32_t source : plan.output_sources) {
      work.output_rows.push_back(work.dispatch.source(source));
    }
    if (work.keep != nullptr) keep_received(work);
  }
  const std::int64_t hidden = router_.hidden();
  work.outputs.reserve(plan.num_outputs() * hidden);
  const MatrixView<float> outputs = work.outputs.matrix(plan.num_outputs(), hidden);
  {
    const PhaseScope scope(times, Phase::experts);
    experts_->start({.rows = work.output_rows,
                     .slot_begin = plan.slot_begin,
                     .outputs = outputs,
                     .keep = work.keep != nullptr ? &work.keep->experts : nullptr});
    experts_->finish();
  }
  const PhaseScope scope(times, Phase::wait);
  work.dispatch = {};
  work.results = work.exchange.combine(outputs, work.plan, work.label.at("results"));
  work.has_executed = true;
  count_load(work, hidden * 4);
}

void MoeLayer::end(MatrixView<float> y, MoeWorkspace& work) {
  if (!work.has_executed) execute(work);
  {
    const PhaseScope scope(work.context.times, Phase::wait);
    work.results.wait();
  }
  const PhaseScope scope(work.context.times, Phase::combine);
  add_results(y, work.routing, work.plan, work.results);
  work.results = {};
  if (work.keep != nullptr) {
    work.keep->routing = std::move(work.routing);
    work.keep->plan = std::move(work.plan);
  }
}

void MoeLayer::add_results(MatrixView<float> y, const Routing& routing, const ExchangePlan& plan,
                           const PendingResults& results) const {
  compute_.pool->for_each(y.rows(), kTokensPerTask, [&](std::int64_t token) {
    const std::span<float> sum = y.row(token);
    std::ranges::fill(sum, 0.0F);
    for (std::int64_t k = 0; k < routing.topk; ++k) {
      const std::int64_t choice = token * routing.topk + k;
      compute_.vector->add_scaled(results.result(plan, choice),
                                  routing.weights[static_cast<std::size_t>(choice)], y.cols(),
                                  sum.data());
    }
  });
}

}  // namespace moesaic
