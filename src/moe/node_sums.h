#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "comm/communicator.h"
#include "src/moe/dispatch_plan.h"

namespace moesaic {

/// The parts of a batch (ExecutePlan::NodeParts) that one rank of a node adds for all of them: on
/// their way to it, and those that this rank adds.
class NodeSums {
 public:
  /// Of a plan: which parts this rank adds.
  void plan(const ExecutePlan& plan, int rank);
  /// Sends parts, which lie in `outputs` [outputs, hidden] when they are ready; `node` has the
  /// ranks of the node. Collective over these.
  void start(Communicator& node, MatrixView<const float> outputs, const ExecutePlan& plan,
             const RowLabel& label);

  /// Rows [first, first + count) of the outputs are what they are to be, and parts among them may
  /// leave.
  void mark_ready(std::int64_t first, std::int64_t count) {
    if (pending_) pending_.mark_ready(first, count);
  }
  /// Whether parts of other ranks are added to this output.
  [[nodiscard]] bool awaits(std::int32_t output) const {
    return !awaits_.empty() && awaits_[static_cast<std::size_t>(output)];
  }
  /// Whether the parts of others are here; never blocks.
  [[nodiscard]] bool is_done() { return pending_.is_done(); }
  /// Returns when they are.
  void wait();
  /// After wait(): the parts of others, in the order of the plan; each of f32.
  [[nodiscard]] std::span<const std::byte* const> received() const { return received_; }
  /// The outputs that await something.
  [[nodiscard]] std::span<const std::int32_t> outputs() const { return outputs_; }
  /// After wait(): adds all parts of outputs()[i], in f32 and in the order of the ranks, where this
  /// rank's own one lies.
  void add(std::size_t i, std::span<float> own) const;
  /// The parts of others are not needed any more.
  void end() { pending_ = {}; }

 private:
  static constexpr std::int32_t kOwn = -1;
  /// A part that comes, or the own one.
  struct Part {
    std::int32_t output;
    int rank;
    std::int32_t row;  // among those received, or kOwn
    auto operator<=>(const Part&) const = default;
  };

  PendingRows pending_;
  std::span<const std::byte* const> received_;  // of f32
  std::vector<bool> awaits_;                    // [outputs]
  std::vector<std::int32_t> outputs_;
  std::vector<Part> parts_;         // by output and rank
  std::vector<std::size_t> begin_;  // [outputs() + 1] the first part of each
};

}  // namespace moesaic
