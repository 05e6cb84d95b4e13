// What Communicator::progress() is for: rows that move while ranks compute.

#include <gtest/gtest.h>

#include <chrono>

#include "comm/shared_memory_communicator.h"
#include "tests/comm/computing_sender.h"
#include "tests/comm/mpi_test_main.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;

/// With threads as those that compute are to be.
void check_progress(Communicator& comm, SharedMemory& memory) {
  ThreadPool pool(2);
  pool.set_between_tasks([&] { comm.progress(); }, 50us);
  rows_leave_while_their_senders_compute(comm, memory, pool);
}

TEST(Progress, moves_rows_over_mpi) {
  const auto comm = make_mpi_communicator(mpi_test_session(), {.timeout = 60s});
  check_progress(*comm, *comm->allocate_shared(8));
}

TEST(Progress, moves_rows_between_nodes) {
  const auto world = make_mpi_communicator(mpi_test_session(), {.timeout = 60s});
  const auto comm =
      make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s, .ranks_per_node = 2});
  check_progress(*comm, *world->allocate_shared(8));
}

TEST(Progress, moves_rows_inside_a_node) {
  const auto comm = make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s});
  check_progress(*comm, *comm->allocate_shared(8));
}

}  // namespace
}  // namespace moesaic
