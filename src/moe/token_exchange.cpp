#include "src/moe/token_exchange.h"

#include <cstring>
#include <numeric>

#include "kernels/format.h"

namespace moesaic {
namespace {

constexpr std::int64_t kIdBytes = sizeof(std::int32_t);

/// Rows start on cache lines.
constexpr std::int64_t kRowAlignment = 64;

}  // namespace

WireRows::WireRows(std::int64_t hidden_bytes, std::int64_t topk)
    : topk_(topk),
      ids_offset_(round_up(hidden_bytes, kIdBytes)),
      row_bytes_(ids_offset_ + topk * kIdBytes),
      stride_bytes_(round_up(row_bytes_, kRowAlignment)) {}

void WireRows::resize(std::int64_t num_tokens) {
  bytes_.reserve(num_tokens * stride_bytes_);
}

void WireRows::set_experts(const Routing& routing) {
  for (std::int64_t token = 0; token < routing.num_tokens; ++token) {
    std::memcpy(activations(token) + ids_offset_, routing.experts_of(token).data(),
                static_cast<std::size_t>(topk_ * kIdBytes));
  }
}

void TokenExchange::start_dispatch(const WireRows& rows, const Routing& routing,
                                   PhaseTimes& times) {
  const auto ranks = static_cast<std::size_t>(comm_->size());
  {
    const PhaseScope scope(times, Phase::dispatch);
    send_ = make_send_plan(routing, *placement_, comm_->rank());
    recv_counts_.assign(ranks, 0);
  }
  if (ranks == 1) return;
  const PhaseScope scope(times, Phase::wait);
  comm_->exchange_counts(send_.send_counts, recv_counts_);
  pending_ = comm_->exchange_rows({.base = rows.data(),
                                   .row_bytes = rows.row_bytes(),
                                   .stride_bytes = rows.stride_bytes(),
                                   .rows = send_.send_tokens,
                                   .counts = send_.send_counts},
                                  recv_counts_);
}

const ExecutePlan& TokenExchange::finish_dispatch(const WireRows& rows, const Routing& routing,
                                                  PhaseTimes& times) {
  std::span<const std::byte> received;
  if (pending_) {
    const PhaseScope scope(times, Phase::wait);
    received = pending_->wait();
    pending_.reset();
  }
  const PhaseScope scope(times, Phase::dispatch);
  const std::int64_t num_received =
      std::accumulate(recv_counts_.begin(), recv_counts_.end(), std::int64_t{0});
  recv_experts_.resize(static_cast<std::size_t>(num_received * rows.topk()));
  const auto received_row = [&](std::int64_t row) {
    return received.data() + row * rows.row_bytes();
  };
  for (std::int64_t row = 0; row < num_received; ++row) {
    std::memcpy(recv_experts_.data() + row * rows.topk(), received_row(row) + rows.ids_offset(),
                static_cast<std::size_t>(rows.topk() * kIdBytes));
  }
  execute_ = make_execute_plan(routing, {.experts = recv_experts_, .counts = recv_counts_},
                               *placement_, comm_->rank());
  output_rows_.clear();
  for (const std::int32_t source : execute_.output_sources) {
    output_rows_.push_back(source < routing.num_tokens ? rows.activations(source)
                                                       : received_row(source - routing.num_tokens));
  }
  return execute_;
}

void TokenExchange::combine(MatrixView<const float> outputs, PhaseTimes& times) {
  const float* returned = nullptr;
  if (comm_->size() > 1) {
    const PhaseScope scope(times, Phase::wait);
    const auto pending =
        comm_->exchange_rows({.base = reinterpret_cast<const std::byte*>(outputs.data()),
                              .row_bytes = outputs.cols() * 4,
                              .stride_bytes = outputs.stride() * 4,
                              .rows = execute_.return_outputs,
                              .counts = execute_.return_counts},
                             send_.return_counts);
    returned = reinterpret_cast<const float*>(pending->wait().data());
  }
  const PhaseScope scope(times, Phase::combine);
  results_.clear();
  for (std::size_t choice = 0; choice < send_.return_rows.size(); ++choice) {
    const std::int32_t row = send_.return_rows[choice];
    results_.push_back(row >= 0 ? returned + row * outputs.cols()
                                : outputs.data() + execute_.own_outputs[choice] * outputs.stride());
  }
}

}  // namespace moesaic
