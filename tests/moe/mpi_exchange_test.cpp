// Exchanges of tokens between processes.

#include <gtest/gtest.h>

#include "comm/shared_memory_communicator.h"
#include "tests/comm/mpi_test_main.h"
#include "tests/moe/backward_on_plan.h"
#include "tests/moe/exchange_allocations.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;

TEST(MpiExchange, plans_carry_a_backward_pass) {
  check_backward_on_plan(*make_mpi_communicator(mpi_test_session(), {.timeout = 60s}));
}

TEST(MpiExchange, allocates_nothing_after_the_first_rounds) {
  check_allocations(*make_mpi_communicator(mpi_test_session(), {.timeout = 60s}));
}

TEST(SharedMemoryExchange, plans_carry_a_backward_pass) {
  check_backward_on_plan(*make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s}));
}

TEST(SharedMemoryExchange, allocates_nothing_after_the_first_rounds) {
  check_allocations(*make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s}));
}

TEST(SharedMemoryExchange, crosses_pretended_nodes) {
  const auto comm =
      make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s, .ranks_per_node = 2});
  check_backward_on_plan(*comm);
  check_allocations(*comm);
}

}  // namespace
}  // namespace moesaic
