#include "src/moe/token_exchange.h"

#include <algorithm>

namespace moesaic {

void PendingDispatch::wait() {
  if (pending_) received_ = pending_.wait();
}

void PendingDispatch::wait_for_words() {
  if (pending_) received_ = pending_.wait_for_tags();
}

bool PendingDispatch::is_here(std::int64_t source) const {
  std::int64_t row = source - num_tokens_;
  if (row < 0) return true;
  int peer = 0;
  while (row >= received_.counts[static_cast<std::size_t>(peer)]) {
    row -= received_.counts[static_cast<std::size_t>(peer++)];
  }
  return row < pending_.num_here(peer);
}

void PendingResults::wait() {
  if (pending_) returned_ = pending_.wait().rows;
}

void TokenExchange::plan_sends(const Routing& routing, ExchangePlan& plan) {
  planner_.plan_sends(routing, plan.send);
  plan.recv_counts.clear();
}

PendingDispatch TokenExchange::dispatch(const WireRows& rows, const ExchangePlan& plan,
                                        const RowLabel& label) {
  const SendPlan& send = plan.send;
  if (comm_->size() == 1) return {rows, send.num_tokens, {}};
  comm_->place() = label;
  return {rows, send.num_tokens,
          comm_->exchange_rows({.base = rows.data(),
                                .row_bytes = rows.row_bytes(),
                                .stride_bytes = rows.stride_bytes(),
                                .rows = send.send_tokens,
                                .counts = send.send_counts,
                                .tag_bytes = rows.words_bytes(),
                                .label = label},
                               plan.recv_counts)};
}

void TokenExchange::finish_plan(const Routing& routing, const PendingDispatch& dispatch,
                                ExchangePlan& plan) {
  const std::int64_t num_received = dispatch.num_received();
  const auto topk = static_cast<std::size_t>(routing.topk);
  recv_experts_.resize(static_cast<std::size_t>(num_received) * topk);
  for (std::int64_t row = 0; row < num_received; ++row) {
    const std::int32_t* const words =
        WireRows::experts_of(dispatch.words(routing.num_tokens + row)) + routing.first_word;
    std::transform(words, words + topk, recv_experts_.begin() + row * routing.topk,
                   [](std::int32_t word) { return ExpertId{word}; });
  }
  plan.recv_counts.assign(dispatch.counts().begin(), dispatch.counts().end());
  if (comm_->size() == 1) plan.recv_counts.assign(1, 0);
  planner_.plan_execution(routing, {.experts = recv_experts_, .counts = plan.recv_counts},
                          plan.execute);
}

PendingResults TokenExchange::combine(MatrixView<const float> outputs, const ExchangePlan& plan,
                                      const RowLabel& label) {
  return combine(
      MatrixView<const std::byte>(reinterpret_cast<const std::byte*>(outputs.data()),
                                  outputs.rows(), outputs.cols() * 4, outputs.stride() * 4),
      plan, label);
}

PendingResults TokenExchange::combine(MatrixView<const std::byte> outputs, const ExchangePlan& plan,
                                      const RowLabel& label, Outputs when) {
  if (comm_->size() == 1) return {outputs, {}};
  comm_->place() = label;
  return {outputs, comm_->exchange_rows({.base = outputs.data(),
                                         .row_bytes = outputs.cols(),
                                         .stride_bytes = outputs.stride(),
                                         .rows = plan.execute.return_outputs,
                                         .counts = plan.execute.return_counts,
                                         .later_rows = when == Outputs::later ? outputs.rows() : 0,
                                         .label = label},
                                        plan.send.return_counts)};
}

}  // namespace moesaic
