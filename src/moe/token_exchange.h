#pragma once

#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "comm/communicator.h"
#include "src/moe/dispatch_plan.h"
#include "src/moe/wire_rows.h"

namespace moesaic {

/// Token rows on their way to the ranks of their experts; owns the rows that this rank receives.
class PendingDispatch {
 public:
  PendingDispatch() = default;
  PendingDispatch(const WireRows& own, std::int64_t num_tokens, PendingRows rows)
      : own_(&own), num_tokens_(num_tokens), pending_(std::move(rows)) {}

  /// Whether all rows are here; never blocks.
  [[nodiscard]] bool is_done() { return pending_.is_done(); }
  /// Returns when all rows are here.
  void wait();
  /// Whether the words of all rows are here, with which a rank plans; never blocks.
  [[nodiscard]] bool has_words() { return pending_.has_tags(); }
  /// Returns when they are.
  void wait_for_words();
  /// After that: whether the row of a source is here too, when last looked at.
  [[nodiscard]] bool is_here(std::int64_t source) const;
  /// Returns when more rows are here than now, or all are.
  void wait_for_more() { pending_.wait_for_more(); }
  /// The activations of a source, as ExecutePlan numbers them, once its row is here: valid as long
  /// as this object and the own rows.
  [[nodiscard]] const std::byte* source(std::int64_t source) const {
    return source < num_tokens_ ? own_->activations(source)
                                : received_.rows[index(source - num_tokens_)];
  }
  /// The words [topk] that travel with it, and its mark; these are here before the row.
  [[nodiscard]] const std::byte* words(std::int64_t source) const {
    return source < num_tokens_ ? own_->words(source) : received_.tags[index(source - num_tokens_)];
  }
  /// How many rows came from each rank, and from all.
  [[nodiscard]] std::span<const std::int64_t> counts() const { return received_.counts; }
  [[nodiscard]] std::int64_t num_received() const { return std::ssize(received_.rows); }

 private:
  static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

  const WireRows* own_ = nullptr;
  std::int64_t num_tokens_ = 0;
  PendingRows pending_;
  ReceivedRows received_;
};

/// Result rows on their way home.
class PendingResults {
 public:
  PendingResults() = default;
  PendingResults(MatrixView<const std::byte> outputs, PendingRows rows)
      : outputs_(outputs), pending_(std::move(rows)) {}

  /// Whether all results of this rank's tokens are here; never blocks.
  [[nodiscard]] bool is_done() { return pending_.is_done(); }
  /// Returns when all results of this rank's tokens are here.
  void wait();
  /// Rows [first, first + count) of the outputs that combine() was to get later are there.
  void mark_ready(std::int64_t first, std::int64_t count) {
    if (pending_) pending_.mark_ready(first, count);
  }
  /// The unweighted result row of a choice, in the form in which it travelled, once wait() has
  /// returned: valid as long as this object and the outputs. With Combine::fast the weighted sum of
  /// this choice and of others of the token, or null: it is added to that of an earlier choice.
  [[nodiscard]] const std::byte* row(const ExchangePlan& plan, std::int64_t choice) const {
    const auto c = static_cast<std::size_t>(choice);
    const std::int32_t row = plan.send.return_rows[c];
    if (row >= 0) return returned_[static_cast<std::size_t>(row)];
    const std::int32_t own = plan.execute.own_outputs[c];
    return own >= 0 ? outputs_.data() + own * outputs_.stride() : nullptr;
  }
  [[nodiscard]] const float* result(const ExchangePlan& plan, std::int64_t choice) const {
    return reinterpret_cast<const float*>(row(plan, choice));
  }

 private:
  MatrixView<const std::byte> outputs_;
  PendingRows pending_;
  std::span<const std::byte* const> returned_;  // [rows] of cols bytes
};

/// Moves token rows to the ranks of their experts and the results back, as a plan says that its
/// owner keeps. Each call that starts something is collective over the expert-parallel group.
class TokenExchange {
 public:
  /// All must outlive this. `combine` is the same on all ranks, and whether `nodes` is null: else
  /// ranks of a node add their parts (NodeSums) before one of them sends the sum home.
  TokenExchange(Communicator& experts, const ExpertPlacement& placement,
                Combine combine = Combine::ordered, const ExpertNodes* nodes = nullptr)
      : comm_(&experts),
        planner_(placement, experts.rank(), combine, nodes != nullptr ? &nodes->map() : nullptr) {}

  /// Experts are placed so from now on; must outlive this.
  void place(const ExpertPlacement& placement) { planner_.place(placement); }

  /// Makes the sending half of `plan`, for its first dispatch; or, where `routing` has only some of
  /// the choices that rows carry, for its results alone.
  void plan_sends(const Routing& routing, ExchangePlan& plan);
  /// Sends the rows of this rank's tokens. As often as wanted for one plan, whatever the rows hold;
  /// from the second time on all ranks know what to expect. `rows` and `plan` stay as they are as
  /// long as anything is pending.
  [[nodiscard]] PendingDispatch dispatch(const WireRows& rows, const ExchangePlan& plan,
                                         const RowLabel& label);
  /// Makes the rest of `plan`, from the expert ids in the rows that the first dispatch has brought,
  /// those of `routing`'s words.
  void finish_plan(const Routing& routing, const PendingDispatch& dispatch, ExchangePlan& plan);
  /// Whether outputs are there when they are sent, or come later (PendingResults::mark_ready).
  enum class Outputs { written, later };
  /// Sends the results `outputs` [outputs, any], rows of bytes or floats, home, a row for each
  /// choice, or for each part. Both stay until the results are not needed any more.
  [[nodiscard]] PendingResults combine(MatrixView<const std::byte> outputs,
                                       const ExchangePlan& plan, const RowLabel& label,
                                       Outputs when = Outputs::written);
  [[nodiscard]] PendingResults combine(MatrixView<const float> outputs, const ExchangePlan& plan,
                                       const RowLabel& label);
  /// Whether results travel in messages, and had better leave before all of them are there.
  [[nodiscard]] bool has_messages() const { return comm_->has_messages(); }

 private:
  Communicator* comm_;
  DispatchPlanner planner_;
  std::vector<ExpertId> recv_experts_;  // [received rows, topk]
};

}  // namespace moesaic
