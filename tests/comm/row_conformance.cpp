// What exchanges of rows do on every transport.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/comm/communicator_conformance.h"
#include "tests/comm/row_side.h"

namespace moesaic::conformance {
namespace {

void run(Communicator& comm, Exchange exchange) {
  Side side(comm, std::move(exchange));
  side.start();
  side.wait();
}

/// `rows` rows from each rank of `senders` to each other rank of `receivers`.
Exchange pattern(int number, int size, std::int64_t row_bytes, int rows, auto&& sends) {
  Exchange exchange(number, size);
  exchange.row_bytes = row_bytes;
  exchange.stride_bytes = row_bytes + number % 3;
  exchange.matrix_rows = rows + 1;
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from == to || !sends(from, to)) continue;
      auto& part = exchange.rows[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
      for (int i = 0; i < rows; ++i) part.push_back((i * 7 + to) % (rows + 1));
    }
  }
  return exchange;
}

constexpr auto kAll = [](int, int) { return true; };

}  // namespace

void row_patterns(Communicator& comm) {
  const int size = comm.size();
  int number = 0;
  for (const std::int64_t row_bytes : {1, 3, 64, 100, 4096}) {
    for (const int rows : {1, 5, 33}) {
      for (int hot = 0; hot < size; ++hot) {
        run(comm, pattern(++number, size, row_bytes, rows, [&](int, int to) { return to == hot; }));
        run(comm,
            pattern(++number, size, row_bytes, rows, [&](int from, int) { return from == hot; }));
        run(comm, pattern(++number, size, row_bytes, rows,
                          [&](int from, int to) { return from != hot && to != hot; }));
      }
      run(comm, pattern(++number, size, row_bytes, rows, kAll));
      run(comm, pattern(++number, size, row_bytes, rows, [](int, int) { return false; }));
    }
  }
  Exchange repeated = pattern(++number, size, 48, 3, kAll);
  for (auto& sender : repeated.rows) {
    for (auto& part : sender) std::fill(part.begin(), part.end(), 2);
  }
  run(comm, std::move(repeated));
}

void growing_rows(Communicator& comm) {
  int number = 1000;
  for (const int rows : {1, 40, 3, 400, 1, 1500, 20}) {
    run(comm, pattern(++number, comm.size(), 1031, rows, kAll));
  }
  run(comm, pattern(++number, comm.size(), 300007, 4, kAll));
  for (int hot = 0; hot < comm.size(); ++hot) {  // only one rank's buffer grows
    run(comm, pattern(++number, comm.size(), 2048, 2000 + 500 * hot,
                      [&](int, int to) { return to == hot; }));
    run(comm, pattern(++number, comm.size(), 2048, 2, kAll));
  }
}

void exchanges_under_way(Communicator& comm) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const std::size_t many = 1 + random() % 20;  // more than there are places
    std::vector<std::unique_ptr<Side>> sides;
    for (std::size_t i = 0; i < many; ++i) {
      if (i >= 8) sides[i - 8]->write_rows();  // its place is needed
      const int number = 2000 + 100 * round + static_cast<int>(i);
      sides.push_back(std::make_unique<Side>(comm, random_exchange(number, comm.size(), random)));
      sides.back()->start();
      if (round % 3 == 0 && i % 4 == 1) comm.barrier();
    }
    for (const auto& side : sides) side->write_rows();
    std::vector<std::size_t> order(many);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    if (round % 2 == 0)
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(comm.rank())));
    for (const std::size_t i : order) sides[i]->wait();
    for (const auto& side : sides) side->verify();  // rows live as long as their handle
  }
}

void rows_stay_while_others_pass(Communicator& comm) {
  std::mt19937 random(8);
  Side kept(comm, pattern(6001, comm.size(), 700, 300, kAll));
  kept.start();
  kept.wait();
  for (int i = 0; i < 40; ++i) run(comm, random_exchange(6002 + i, comm.size(), random));
  kept.verify();
}

void memory_is_renewed_while_it_is_read(Communicator& comm) {
  std::mt19937 random(9);
  const auto memory = comm.make_row_memory();
  std::deque<std::unique_ptr<Side>> kept;  // some ranks keep what they got longer than others
  for (int i = 0; i < 60; i += 2) {
    for (int number = 8100 + i; number < 8102 + i; ++number) {
      Exchange exchange = i % 3 == 0 ? pattern(number, comm.size(), 40 << i % 8, 30, kAll)
                                     : random_exchange(number, comm.size(), random);
      kept.push_back(std::make_unique<Side>(comm, std::move(exchange), memory.get()));
      kept.back()->start();
    }
    kept.end()[-1]->wait();
    kept.end()[-2]->wait();
    for (const auto& side : kept) side->verify();
    if (kept.size() > static_cast<std::size_t>(1 + 2 * comm.rank())) kept.pop_front();
  }
}

void rows_move_without_waiting(Communicator& comm) {
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    Side side(comm, random_exchange(5001 + 2 * round, comm.size(), random));
    side.start();
    side.write_rows();
    while (!side.is_done()) {
      comm.progress();
      std::this_thread::yield();
    }
    side.wait();
  }
}

void rows_written_later(Communicator& comm) {
  for (const int rows : {3, 900}) {  // in one message, and in pieces
    Exchange exchange = pattern(7000 + rows, comm.size(), 1500, rows, kAll);
    exchange.later = true;
    Side side(comm, std::move(exchange));
    side.start();
    comm.barrier();
    if (comm.size() > 1) {
      EXPECT_FALSE(side.is_done());
    }
    comm.barrier();
    side.wait();
  }
}

void rows_leave_in_pieces(Communicator& comm) {
  std::int64_t node_size = comm.split_node()->size();
  comm.max(std::span(&node_size, 1));
  if (node_size > 1 || comm.size() == 1) return;  // of ranks that are a node each
  constexpr std::int64_t kRows = 900;
  constexpr std::int64_t kBytes = 1500;
  const std::vector<std::byte> data(kRows * kBytes, std::byte{5});
  const auto others = static_cast<std::size_t>(comm.size() - 1);
  std::vector<std::int32_t> rows(others * kRows);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i % kRows);
  std::vector<std::int64_t> counts(others + 1, kRows);
  counts[static_cast<std::size_t>(comm.rank())] = 0;
  PendingRows pending = comm.exchange_rows({.base = data.data(),
                                            .row_bytes = kBytes,
                                            .stride_bytes = kBytes,
                                            .rows = rows,
                                            .counts = counts,
                                            .later_rows = kRows},
                                           {});
  (void)pending.wait_for_tags();
  pending.mark_ready(0, kRows / 2);
  for (int peer = 0; peer < comm.size(); ++peer) {  // less than half have to wait for the others
    while (peer != comm.rank() && pending.num_here(peer) < kRows / 2 - 100) pending.wait_for_more();
    EXPECT_LE(pending.num_here(peer), kRows / 2);
  }
  comm.barrier();
  pending.mark_ready(kRows / 2, kRows - kRows / 2);
  EXPECT_EQ(pending.wait().rows.size(), rows.size());
}

void rows_cross_once_a_node(Communicator& comm) {
  const auto node = comm.split_node();
  std::vector<int> node_of(static_cast<std::size_t>(comm.size()));
  int id = comm.rank();
  node->broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  comm.all_gather(std::as_bytes(std::span(&id, 1)), std::as_writable_bytes(std::span(node_of)));
  const auto num_nodes = static_cast<std::int64_t>(std::set(node_of.begin(), node_of.end()).size());
  const RowCounters before = comm.row_counters();
  // Every rank wants the same row of every other.
  Exchange exchange = pattern(8001, comm.size(), 5000, 1, kAll);
  for (auto& sender : exchange.rows) {
    for (auto& part : sender) std::fill(part.begin(), part.end(), 1);
  }
  run(comm, std::move(exchange));
  const RowCounters after = comm.row_counters();
  const std::int64_t far_ranks = comm.size() - node->size();
  if (comm.transport() == "mpi") return;  // each rank is a node
  EXPECT_EQ(after.messages - before.messages, num_nodes - 1);
  EXPECT_EQ(after.rows_saved - before.rows_saved, far_ranks - (num_nodes - 1));
  EXPECT_EQ(after.bytes_near - before.bytes_near, (node->size() - 1) * 5000);
  EXPECT_GE(after.bytes_far - before.bytes_far, (num_nodes - 1) * 5000);
  EXPECT_LE(after.bytes_far - before.bytes_far, (num_nodes - 1) * (5000 + 256));
}

void random_exchanges(Communicator& comm, int num_exchanges) {
  std::mt19937 random(static_cast<unsigned>(comm.size()) * 17);
  std::mt19937 delays(static_cast<unsigned>(comm.rank()));
  const auto now_and_then = [&] {
    if (delays() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
  };
  for (int i = 0; i < num_exchanges; ++i) {
    Side side(comm, random_exchange(10000 + i, comm.size(), random));
    now_and_then();
    side.start();
    now_and_then();
    side.write_rows();
    now_and_then();
    side.wait();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace moesaic::conformance
