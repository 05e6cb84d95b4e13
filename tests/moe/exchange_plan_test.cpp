// Plans of exchanges as those who keep them use them, on ranks that are threads.

#include <gtest/gtest.h>

#include <vector>

#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "tests/moe/backward_on_plan.h"
#include "tests/moe/exchange_allocations.h"

namespace moesaic {
namespace {

/// Notes for each exchange whether its rank has said how many rows come.
class NotingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    EXPECT_TRUE(expected.empty() || std::ssize(expected) == size());
    is_known.push_back(!expected.empty());
    return ForwardingCommunicator::exchange_rows(send, expected);
  }

  std::vector<bool> is_known;
};

TEST(ExchangePlan, carries_a_backward_pass) {
  for (const int ranks : {1, 2, 3, 4}) run_thread_ranks(ranks, check_backward_on_plan);
}

TEST(ExchangePlan, knows_how_many_rows_come_but_in_its_first_dispatch) {
  for (const int ranks : {2, 3}) {
    run_thread_ranks(ranks, [](Communicator& world) {
      NotingCommunicator noting(world);
      check_backward_on_plan(noting);
      // Of two micro-batches: rows and results of each, then of each gradients there and back.
      const std::vector<bool> expected = {false, true, false, true, true, true, true, true};
      EXPECT_EQ(noting.is_known, expected) << "rank " << world.rank() << " of " << world.size();
    });
  }
}

TEST(TokenExchange, allocates_nothing_after_the_first_rounds) {
  for (const int ranks : {1, 2, 3}) run_thread_ranks(ranks, check_allocations);
}

}  // namespace
}  // namespace moesaic
