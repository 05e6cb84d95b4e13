// The shared expert is computed while rows travel to routed ones.

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "tests/moe/forwarding_rows.h"
#include "tests/support/test_engine.h"

namespace moesaic::test {
namespace {

/// Rows that tell when somebody begins to wait for them.
class ToldRows final : public ForwardingRows {
 public:
  ToldRows(PendingRows rows, const std::function<void()>& on_wait)
      : ForwardingRows(std::move(rows)), on_wait_(on_wait) {}

  const ReceivedRows& wait() override {
    if (on_wait_) on_wait_();
    return rows().wait();
  }

 private:
  const std::function<void()>& on_wait_;
};

/// Calls on_wait when this rank begins to wait for the rows of a layer; so do its parts.
class TellingCommunicator final : public ForwardingCommunicator {
 public:
  TellingCommunicator(Communicator& base, const std::function<void()>& on_wait)
      : ForwardingCommunicator(base), on_wait_(on_wait) {}
  TellingCommunicator(std::unique_ptr<Communicator> part, const std::function<void()>& on_wait)
      : ForwardingCommunicator(*part), part_(std::move(part)), on_wait_(on_wait) {}

  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<TellingCommunicator>(base().split(color, key), on_wait_);
  }
  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    PendingRows rows = base().exchange_rows(send, expected);
    if (send.label.phase != send.label.at("rows").phase) return rows;
    return PendingRows(told_.emplace_back(std::move(rows), on_wait_));
  }

 private:
  std::unique_ptr<Communicator> part_;  // that this one forwards to, if it is its own
  const std::function<void()>& on_wait_;
  std::deque<ToldRows> told_;
};

TEST(SharedExpert, is_computed_before_a_rank_waits_for_rows) {
  const EngineSetup setup{.directory = std::string(MOESAIC_TEST_DATA "/models/qwen2_moe-v4"),
                          .isa = supported_isas().back()};
  run_thread_ranks(2, [&](Communicator& world) {
    std::vector<double> shared_seconds;  // so far, at each wait
    std::function<void()> on_wait;
    TellingCommunicator telling(world, on_wait);
    TestEngine engine(setup, telling);
    on_wait = [&] {
      shared_seconds.push_back(
          engine.transformer().times().seconds[static_cast<std::size_t>(Phase::mlp)]);
    };
    const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
    (void)run_sequence(engine.transformer(), tokens, std::ssize(tokens), std::ssize(tokens));
    on_wait = {};
    ASSERT_EQ(std::ssize(shared_seconds), engine.config().num_moe_layers());
    double before = 0;
    for (const double seconds : shared_seconds) {
      EXPECT_GT(seconds, before);
      before = seconds;
    }
  });
}

}  // namespace
}  // namespace moesaic::test
