#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/matrix_view.h"
#include "base/phase_times.h"
#include "comm/communicator.h"
#include "src/moe/dispatch_plan.h"

namespace moesaic {

/// This rank's token rows in the form that travels: the activations, then the expert ids of the
/// token's choices. A row is written once and read where it lies, here or, after the exchange, at
/// its experts.
class WireRows {
 public:
  /// `hidden_bytes`: bytes of one row's activations (a multiple of 2); `topk` ids follow them.
  WireRows(std::int64_t hidden_bytes, std::int64_t topk);

  void resize(std::int64_t num_tokens);
  void set_experts(const Routing& routing);

  [[nodiscard]] std::byte* activations(std::int64_t token) const {
    return bytes_.data() + token * stride_bytes_;
  }
  [[nodiscard]] std::int64_t row_bytes() const noexcept { return row_bytes_; }
  [[nodiscard]] std::int64_t stride_bytes() const noexcept { return stride_bytes_; }
  [[nodiscard]] std::int64_t ids_offset() const noexcept { return ids_offset_; }
  [[nodiscard]] std::int64_t topk() const noexcept { return topk_; }
  [[nodiscard]] const std::byte* data() const noexcept { return bytes_.data(); }

 private:
  std::int64_t topk_;
  std::int64_t ids_offset_;
  std::int64_t row_bytes_;
  std::int64_t stride_bytes_;
  Buffer<std::byte> bytes_;
};

/// Moves token rows to the ranks of their experts and the results back. All calls are collective
/// over the expert-parallel group. dispatch() may be split: start_dispatch() returns at once, and
/// work that needs no other rank can run before finish_dispatch().
class TokenExchange {
 public:
  /// Both must outlive this.
  TokenExchange(Communicator& experts, const ExpertPlacement& placement)
      : comm_(&experts), placement_(&placement) {}

  void start_dispatch(const WireRows& rows, const Routing& routing, PhaseTimes& times);
  /// The plan of what this rank's experts have to do, and each output's input row.
  const ExecutePlan& finish_dispatch(const WireRows& rows, const Routing& routing,
                                     PhaseTimes& times);
  [[nodiscard]] std::span<const std::byte* const> output_rows() const { return output_rows_; }
  /// Token rows that left this rank in the last dispatch.
  [[nodiscard]] std::int64_t rows_sent() const {
    return static_cast<std::int64_t>(send_.send_tokens.size());
  }

  /// Brings home the results `outputs` [outputs, hidden] of the last dispatch. Afterwards
  /// result(choice) is the unweighted row of each own choice, until the next dispatch.
  void combine(MatrixView<const float> outputs, PhaseTimes& times);
  [[nodiscard]] const float* result(std::int64_t choice) const {
    return results_[static_cast<std::size_t>(choice)];
  }

 private:
  Communicator* comm_;
  const ExpertPlacement* placement_;
  SendPlan send_;
  ExecutePlan execute_;
  std::vector<std::int64_t> recv_counts_;
  std::vector<std::int32_t> recv_experts_;
  std::unique_ptr<PendingRows> pending_;
  std::vector<const std::byte*> output_rows_;
  std::vector<const float*> results_;
};

}  // namespace moesaic
