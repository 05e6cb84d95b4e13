#include "comm/traced_communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/thread_communicator.h"
#include "tests/comm/communicator_conformance.h"

namespace moesaic {
namespace {

/// Runs `body` on traced thread ranks; returns each rank's trace.
template <typename Body>
std::vector<CommTrace> traces_of(int size, Body&& body) {
  auto ranks = make_thread_communicators(size);
  std::vector<CommTrace> traces(static_cast<std::size_t>(size));
  run_thread_ranks(size, [&](Communicator& outer) {
    const auto rank = static_cast<std::size_t>(outer.rank());
    const auto comm = make_traced_communicator(std::move(ranks[rank]), traces[rank]);
    body(*comm);
  });
  return traces;
}

TEST(TracedCommunicator, changes_nothing) {
  traces_of(3, [](Communicator& comm) { conformance::everything(comm, 200); });
}

TEST(TracedCommunicator, counts_calls_and_bytes) {
  const auto traces = traces_of(2, [](Communicator& comm) {
    std::vector<float> values(10);
    comm.sum(values);
    std::vector<std::byte> data(100);
    comm.broadcast(data, 1);
    const auto part = comm.split(0, 0);  // its calls count as well
    part->sum(values);
    const std::vector<std::int32_t> rows = {0, 0, 1};
    const std::vector<std::int64_t> send = {comm.rank() == 1 ? 3 : 0, comm.rank() == 0 ? 3 : 0};
    (void)comm.exchange_rows({data.data(), 16, 20, rows, send}, send)->wait();
  });
  for (const CommTrace& trace : traces) {
    EXPECT_EQ(trace[CommCall::sum].calls, 2);
    EXPECT_EQ(trace[CommCall::sum].bytes, 80);
    EXPECT_EQ(trace[CommCall::split].calls, 1);
    EXPECT_EQ(trace[CommCall::barrier].calls, 0);
    EXPECT_EQ(trace[CommCall::exchange_rows].bytes, 48);
    EXPECT_EQ(trace[CommCall::wait_rows].calls, 1);
    EXPECT_EQ(trace[CommCall::wait_rows].bytes, 48);
    EXPECT_EQ(trace.total().calls, 6);
  }
  EXPECT_EQ(traces[0][CommCall::broadcast].bytes, 0);
  EXPECT_EQ(traces[1][CommCall::broadcast].bytes, 100);
  EXPECT_EQ(comm_call_name(CommCall::wait_rows), "wait_rows");
  EXPECT_EQ(comm_call_name(CommCall::allocate_shared), "allocate_shared");
}

TEST(TracedCommunicator, counts_the_wait_for_others) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> waiting = false;
  double seconds = 0;  // of the wait, with what the test does around it
  const auto traces = traces_of(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      const auto begin = Clock::now();
      waiting = true;
      comm.barrier();
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    } else {
      while (!waiting) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      comm.barrier();
    }
  });
  EXPECT_GT(traces[0][CommCall::barrier].seconds, 0);
  EXPECT_LE(traces[0][CommCall::barrier].seconds, seconds);
}

}  // namespace
}  // namespace moesaic
