// What Communicator::progress() is for: rows that move while ranks compute.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "comm/shared_memory_communicator.h"
#include "tests/comm/mpi_test_main.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRowBytes = 64 * 1024;
constexpr std::int64_t kRows = 256;

/// Rank 0 receives rows of all others and then says so in memory that all see. The others do
/// nothing for it but compute, with a look at their transfers between two tasks.
void rows_leave_while_their_senders_compute(Communicator& comm, SharedMemory& memory) {
  const std::atomic_ref arrived(*reinterpret_cast<std::int64_t*>(memory.bytes().data()));
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::vector<std::byte> data(static_cast<std::size_t>(kRowBytes * kRows), std::byte{7});
  std::vector<std::int32_t> rows;
  std::vector<std::int64_t> send_counts(ranks);
  if (comm.rank() > 0) {
    for (std::int32_t row = 0; row < kRows; ++row) rows.push_back(row);
    send_counts[0] = kRows;
  }
  PendingRows pending =
      comm.exchange_rows({data.data(), kRowBytes, kRowBytes, rows, send_counts}, {});
  if (comm.rank() == 0) {
    const std::span<const std::byte* const> received = pending.wait().rows;
    EXPECT_EQ(std::ssize(received), kRows * (comm.size() - 1));
    for (const std::byte* row : received) {
      EXPECT_EQ(std::count(row, row + kRowBytes, std::byte{7}), kRowBytes);
    }
    arrived.store(1);
    return;
  }
  ThreadPool pool(2);
  pool.set_between_tasks([&] { comm.progress(); }, 50us);
  const auto deadline = Clock::now() + 60s;
  while (arrived.load() == 0 && Clock::now() < deadline) {
    pool.parallel_for(20, [](std::int64_t, int) { std::this_thread::sleep_for(100us); });
  }
  EXPECT_EQ(arrived.load(), 1);
}

TEST(Progress, moves_rows_over_mpi) {
  const auto comm = make_mpi_communicator(mpi_test_session(), {.timeout = 60s});
  rows_leave_while_their_senders_compute(*comm, *comm->allocate_shared(8));
}

TEST(Progress, moves_rows_between_nodes) {
  const auto world = make_mpi_communicator(mpi_test_session(), {.timeout = 60s});
  const auto comm =
      make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s, .ranks_per_node = 2});
  rows_leave_while_their_senders_compute(*comm, *world->allocate_shared(8));
}

TEST(Progress, moves_rows_inside_a_node) {
  const auto comm = make_shared_memory_communicator(mpi_test_session(), {.timeout = 60s});
  rows_leave_while_their_senders_compute(*comm, *comm->allocate_shared(8));
}

}  // namespace
}  // namespace moesaic
