#include "tests/comm/communicator_conformance.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "comm/pending_sums.h"
#include "tests/comm/row_side.h"

namespace moesaic::conformance {
namespace {

using Counts = std::vector<std::int64_t>;

std::vector<std::byte> row_of(int exchange, int rank, std::int64_t row, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  fill_row(exchange, rank, row, data);
  return data;
}

}  // namespace

void collectives(Communicator& comm) {
  const int size = comm.size();
  const auto ranks = static_cast<std::size_t>(size);
  comm.barrier();
  for (const std::size_t bytes : {0u, 1u, 63u, 5000u, 70001u}) {
    for (int root = 0; root < size; ++root) {
      std::vector<std::byte> data(bytes);
      if (comm.rank() == root) fill_row(0, root, 0, data);
      comm.broadcast(data, root);
      ASSERT_EQ(data, row_of(0, root, 0, bytes));
    }
    std::vector<std::byte> recv(bytes * ranks);
    comm.all_gather(row_of(7, comm.rank(), 1, bytes), recv);
    for (int p = 0; p < size; ++p) {
      const auto theirs = recv.begin() + static_cast<std::ptrdiff_t>(bytes) * p;
      const auto expected = row_of(7, p, 1, bytes);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), theirs));
    }
  }
  for (const std::size_t count : {0u, 1u, 7u, 511u, 513u, 40000u}) {
    Counts sums(count);
    Counts maxima(count);
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] = static_cast<std::int64_t>(i) * (comm.rank() + 1) - (std::int64_t{1} << 50);
      maxima[i] = -std::abs(static_cast<std::int64_t>(i % ranks) - comm.rank());
    }
    comm.sum(sums);
    comm.max(maxima);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(sums[i], static_cast<std::int64_t>(i) * size * (size + 1) / 2 -
                             size * (std::int64_t{1} << 50));
      ASSERT_EQ(maxima[i], 0);
    }
  }
}

void pending_sums(Communicator& comm) {
  PendingSums sums(comm);
  const auto value = [](std::int64_t number, std::int64_t i, int rank) {
    return (number * 1000 + i) * (rank + 1) - (std::int64_t{1} << 40);
  };
  std::vector<Counts> values;
  for (const std::size_t count : {1, 7, 0, 5000, 3, 300000, 11, 64, 1, 1, 2, 900}) {
    const std::int64_t number = std::ssize(values);
    Counts& own = values.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) {
      own[i] = value(number, static_cast<std::int64_t>(i), comm.rank());
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::span<std::int64_t> all(values[i]);
    const std::size_t half = all.size() / 2;
    const std::array<std::span<std::int64_t>, 3> parts = {all.first(half), {}, all.subspan(half)};
    ASSERT_EQ(sums.start_sum(parts, {}), static_cast<std::int64_t>(i) + 1);
    if (i % 3 == 0) comm.barrier();  // another call
    ASSERT_EQ(sums.is_done(static_cast<std::int64_t>(i) + 1), comm.size() == 1);
    ASSERT_TRUE(i < 6 || sums.is_done(static_cast<std::int64_t>(i) - 5));
    if (i == 8) sums.finish();
  }
  sums.finish();
  for (std::int64_t number = 0; number < std::ssize(values); ++number) {
    const Counts& own = values[static_cast<std::size_t>(number)];
    ASSERT_TRUE(sums.is_done(number + 1));
    for (std::int64_t i = 0; i < std::ssize(own); ++i) {
      std::int64_t expected = 0;
      for (int rank = 0; rank < comm.size(); ++rank) expected += value(number, i, rank);
      ASSERT_EQ(own[static_cast<std::size_t>(i)], expected) << number << ", value " << i;
    }
  }
}

void splits(Communicator& comm) {
  const int size = comm.size();
  const auto odd_even = comm.split(comm.rank() % 2, -comm.rank());
  std::vector<int> members;  // descending, as the keys ask for
  for (int rank = size - 1; rank >= 0; --rank) {
    if (rank % 2 == comm.rank() % 2) members.push_back(rank);
  }
  ASSERT_EQ(odd_even->size(), static_cast<int>(members.size()));
  ASSERT_EQ(members[static_cast<std::size_t>(odd_even->rank())], comm.rank());
  collectives(*odd_even);
  random_exchanges(*odd_even, 20);
  const auto same_keys = comm.split(3, 0);
  ASSERT_EQ(same_keys->rank(), comm.rank());
  ASSERT_EQ(same_keys->size(), size);
  const auto alone = comm.split(comm.rank(), 0);
  ASSERT_EQ(alone->size(), 1);
  everything(*alone, 5);
  const auto grandchild = odd_even->split(odd_even->rank() / 2, 0);
  random_exchanges(*grandchild, 20);
  comm.place() = {.step = 7 + comm.rank(), .layer = 3, .phase = {}};
  ASSERT_EQ(grandchild->place(), comm.place()) << "a rank is at one place";
}

void shared_memory(Communicator& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto size = static_cast<std::size_t>(comm.size());
  const std::shared_ptr<SharedMemory> kept = comm.allocate_shared(64);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{3000001}}) {
    const auto memory = comm.allocate_shared(static_cast<std::int64_t>(bytes));
    const std::span<std::byte> data = memory->bytes();
    ASSERT_EQ(data.size(), bytes);
    ASSERT_EQ(std::memcmp(data.data(), std::vector<std::byte>(bytes).data(), bytes), 0);
    comm.barrier();
    const std::vector<std::byte> expected = row_of(1, 0, 0, bytes);
    for (std::size_t i = rank; i < bytes; i += size) data[i] = expected[i];
    comm.barrier();
    ASSERT_EQ(std::memcmp(data.data(), expected.data(), bytes), 0);
    comm.barrier();
    if (comm.rank() == 0) kept->bytes()[0] = std::byte{1};
  }
  ASSERT_EQ(comm.allocate_shared(0)->bytes().size(), 0u);
  ASSERT_EQ(kept->bytes()[0], std::byte{1});
}

void long_waits_cost_little(Communicator& comm) {
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  // Others on the machine may make one wait dear, not each of them.
  const auto wait_in = [&](const std::function<void()>& call) {
    std::int64_t is_dear = 1;
    for (int attempt = 0; attempt < 3 && is_dear != 0; ++attempt) {
      comm.barrier();
      const auto start = std::chrono::steady_clock::now();
      const double before = cpu_seconds();
      if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      call();
      const double cpu = cpu_seconds() - before;
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      is_dear = cpu > waited.count() / 2 ? 1 : 0;
      comm.max({&is_dear, 1});
    }
    EXPECT_EQ(is_dear, 0) << "each wait took a core for half of its time or more";
  };
  const Counts none(static_cast<std::size_t>(comm.size()));
  wait_in([&] { comm.barrier(); });
  wait_in([&] { (void)comm.exchange_rows({nullptr, 8, 8, {}, none}, {}).wait(); });
}

void everything(Communicator& comm, int num_exchanges) {
  collectives(comm);
  row_patterns(comm);
  growing_rows(comm);
  exchanges_under_way(comm);
  rows_stay_while_others_pass(comm);
  memory_is_renewed_while_it_is_read(comm);
  rows_move_without_waiting(comm);
  rows_written_later(comm);
  rows_leave_in_pieces(comm);
  rows_cross_once_a_node(comm);
  random_exchanges(comm, num_exchanges);
  pending_sums(comm);
  if (comm.size() > 1) splits(comm);
  shared_memory(*comm.split_node());
  long_waits_cost_little(comm);
}

}  // namespace moesaic::conformance
