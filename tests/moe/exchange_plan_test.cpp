// Plans of exchanges as those who keep them use them, on ranks that are threads.

#include <gtest/gtest.h>

#include "comm/thread_communicator.h"
#include "tests/moe/backward_on_plan.h"
#include "tests/moe/exchange_allocations.h"

namespace moesaic {
namespace {

TEST(ExchangePlan, carries_a_backward_pass) {
  for (const int ranks : {1, 2, 3, 4}) run_thread_ranks(ranks, check_backward_on_plan);
}

TEST(TokenExchange, allocates_nothing_after_the_first_rounds) {
  for (const int ranks : {1, 2, 3}) run_thread_ranks(ranks, check_allocations);
}

}  // namespace
}  // namespace moesaic
