#include "src/moe/token_exchange.h"

#include <algorithm>
#include <utility>

namespace moesaic {

void PendingDispatch::wait() {
  if (pending_) received_ = pending_.wait();
}

void PendingResults::wait() {
  if (pending_) returned_ = reinterpret_cast<const float*>(pending_.wait().data());
}

PendingPlan TokenExchange::start_plan(const Routing& routing, ExchangePlan& plan) {
  planner_.plan_sends(routing, plan.send);
  plan.recv_counts.assign(plan.send.send_counts.size(), 0);
  if (comm_->size() == 1) return {};
  return comm_->start_counts(plan.send.send_counts, plan.recv_counts);
}

PendingDispatch TokenExchange::dispatch(const WireRows& rows, const ExchangePlan& plan,
                                        PendingPlan counts) {
  const SendPlan& send = plan.send;
  if (comm_->size() == 1) return {rows, send.num_tokens, {}};
  return {rows, send.num_tokens,
          comm_->exchange_rows({.base = rows.data(),
                                .row_bytes = rows.row_bytes(),
                                .stride_bytes = rows.stride_bytes(),
                                .rows = send.send_tokens,
                                .counts = send.send_counts},
                               plan.recv_counts, std::move(counts))};
}

void TokenExchange::finish_plan(const Routing& routing, const WireRows& rows,
                                const PendingDispatch& dispatch, ExchangePlan& plan) {
  const std::int64_t num_received = dispatch.num_received();
  const auto topk = static_cast<std::size_t>(rows.topk());
  recv_experts_.resize(static_cast<std::size_t>(num_received) * topk);
  for (std::int64_t row = 0; row < num_received; ++row) {
    std::copy_n(rows.experts_of(dispatch.source(routing.num_tokens + row)), topk,
                recv_experts_.begin() + row * rows.topk());
  }
  planner_.plan_execution(routing, {.experts = recv_experts_, .counts = plan.recv_counts},
                          plan.execute);
}

PendingResults TokenExchange::combine(MatrixView<const float> outputs, const ExchangePlan& plan) {
  if (comm_->size() == 1) return {outputs, {}};
  return {outputs, comm_->exchange_rows({.base = reinterpret_cast<const std::byte*>(outputs.data()),
                                         .row_bytes = outputs.cols() * 4,
                                         .stride_bytes = outputs.stride() * 4,
                                         .rows = plan.execute.return_outputs,
                                         .counts = plan.execute.return_counts},
                                        plan.send.return_counts, {})};
}

}  // namespace moesaic
