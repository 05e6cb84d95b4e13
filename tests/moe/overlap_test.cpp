// What a rank does while its rows are under way: what is deferred is computed then, and no later.

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "tests/moe/forwarding_rows.h"
#include "tests/moe/small_layers.h"

namespace moesaic::test {
namespace {

/// Deferred results that count how many of them are computed.
class CountedResults final : public ForwardingRows {
 public:
  CountedResults(PendingRows rows, std::int64_t& computed)
      : ForwardingRows(std::move(rows)), computed_(computed) {}

  void mark_ready(std::int64_t first, std::int64_t count) override {
    computed_ += count;
    ForwardingRows::mark_ready(first, count);
  }

 private:
  std::int64_t& computed_;
};

/// Rows that seem to be under way until somebody has computed deferred results since they started,
/// and no longer; who waits for them gets them.
class RowsMeanwhile final : public ForwardingRows {
 public:
  RowsMeanwhile(PendingRows rows, std::string phase, const std::int64_t& computed,
                std::vector<std::string>& events)
      : ForwardingRows(std::move(rows)),
        phase_(std::move(phase)),
        computed_(computed),
        before_(computed),
        events_(events) {}

  bool advance() override { return computed_ > before_; }
  const ReceivedRows& wait() override {
    events_.push_back(phase_ + (computed_ > before_ ? " beside deferred" : " alone"));
    return rows().wait();
  }

 private:
  std::string phase_;
  const std::int64_t& computed_;
  std::int64_t before_;
  std::vector<std::string>& events_;
};

class WatchingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    PendingRows rows = base().exchange_rows(send, expected);
    const std::string phase = send.label.phase.data();
    if (phase == "deferred") return PendingRows(counted_.emplace_back(std::move(rows), computed_));
    return PendingRows(meanwhile_.emplace_back(std::move(rows), phase, computed_, events));
  }

  std::vector<std::string> events;

 private:
  std::int64_t computed_ = 0;
  std::deque<CountedResults> counted_;
  std::deque<RowsMeanwhile> meanwhile_;
};

TEST(Overlap, deferred_choices_are_computed_while_rows_and_results_are_under_way) {
  const Shape shape{.experts = 12, .topk = 4};  // some of the deferred ones are of every rank
  const std::array layers = {Model(shape, 11), Model(shape, 12)};
  for (const int ranks : {2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      WatchingCommunicator watching(world);
      Rank rank(layers, watching, 1);
      MoeWorkspace work = rank.workspace();
      for (std::size_t l = 0; l < layers.size(); ++l) {
        const std::vector<float> x = rank.inputs({world.rank() * std::int64_t{20}, 20}, l);
        work.defer = l + 1 < layers.size() ? 2 : 0;
        rank.begin(x, work, l);
        (void)rank.end(x, work, l);
      }
      // Before the first layer nothing is deferred. What the second leaves over is computed once
      // its results are under way, if anything is.
      ASSERT_EQ(watching.events.size(), 4U);
      watching.events.pop_back();
      EXPECT_EQ(watching.events, (std::vector<std::string>{"rows alone", "results beside deferred",
                                                           "rows beside deferred"}))
          << ranks << " ranks";
    });
  }
}

}  // namespace
}  // namespace moesaic::test
