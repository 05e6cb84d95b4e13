#include "tests/comm/computing_sender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace moesaic {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kRowBytes = 64 * 1024;
constexpr std::int64_t kRows = 256;

}  // namespace

void rows_leave_while_their_senders_compute(Communicator& comm, SharedMemory& memory,
                                            ThreadPool& pool) {
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
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (arrived.load() == 0 && std::chrono::steady_clock::now() < deadline) {
    pool.parallel_for(20, [](std::int64_t, int) { std::this_thread::sleep_for(100us); });
  }
  EXPECT_EQ(arrived.load(), 1);
}

}  // namespace moesaic
