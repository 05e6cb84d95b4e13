#include "tests/comm/communicator_conformance.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace moesaic::conformance {
namespace {

using Counts = std::vector<std::int64_t>;

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Fills `bytes` with what row `row` of `rank`'s matrix holds in exchange `exchange`.
void fill_row(int exchange, int rank, std::int64_t row, std::span<std::byte> bytes) {
  const auto part = static_cast<std::uint64_t>(exchange) << 16 | static_cast<std::uint64_t>(rank);
  const std::uint64_t seed = scramble(scramble(part) + static_cast<std::uint64_t>(row));
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = scramble(seed + i);
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
  }
}

std::vector<std::byte> row_of(int exchange, int rank, std::int64_t row, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  fill_row(exchange, rank, row, data);
  return data;
}

/// Who sends which rows to whom, and how wide they are: the same on every rank.
struct Exchange {
  int number = 0;
  std::int64_t row_bytes = 8;
  std::int64_t stride_bytes = 8;
  std::int64_t matrix_rows = 0;
  std::vector<std::vector<std::vector<std::int32_t>>> rows;  // [sender][receiver] row numbers

  Exchange(int its_number, int size)
      : number(its_number),
        rows(static_cast<std::size_t>(size),
             std::vector<std::vector<std::int32_t>>(static_cast<std::size_t>(size))) {}
};

/// This rank's side of an exchange; owns what must stay untouched until it is over.
class Side {
 public:
  Side(Communicator& comm, Exchange exchange) : comm_(comm), exchange_(std::move(exchange)) {
    matrix_.resize(static_cast<std::size_t>(exchange_.matrix_rows * exchange_.stride_bytes));
    for (std::int64_t row = 0; row < exchange_.matrix_rows; ++row) {
      fill_row(exchange_.number, comm.rank(), row,
               std::span(matrix_).subspan(static_cast<std::size_t>(row * exchange_.stride_bytes),
                                          static_cast<std::size_t>(exchange_.row_bytes)));
    }
    const auto& mine = exchange_.rows[static_cast<std::size_t>(comm.rank())];
    for (const auto& part : mine) {
      counts_.push_back(static_cast<std::int64_t>(part.size()));
      rows_.insert(rows_.end(), part.begin(), part.end());
    }
    recv_counts_.resize(counts_.size());
  }

  void start() {
    PendingCounts counts = comm_.start_counts(counts_, recv_counts_);
    const bool counts_first = exchange_.number % 2 == 0;
    if (counts_first) counts.wait();
    const RowSend send{matrix_.data(), exchange_.row_bytes, exchange_.stride_bytes, rows_, counts_};
    pending_ =
        comm_.exchange_rows(send, recv_counts_, counts_first ? PendingCounts() : std::move(counts));
  }

  void wait() {
    received_ = pending_.wait();
    for (std::size_t p = 0; p < recv_counts_.size(); ++p) {
      ASSERT_EQ(recv_counts_[p], std::ssize(sent_by(static_cast<int>(p))));
    }
    verify();
  }
  [[nodiscard]] bool is_done() { return pending_.is_done(); }

  void verify() const {
    if (!received_.empty()) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(received_.data()) % 64, 0u);
    }
    const auto row_bytes = static_cast<std::size_t>(exchange_.row_bytes);
    std::vector<std::byte> expected(row_bytes);
    std::size_t place = 0;
    for (int peer = 0; peer < comm_.size(); ++peer) {
      for (const std::int32_t row : sent_by(peer)) {
        ASSERT_LE(place + row_bytes, received_.size()) << "exchange " << exchange_.number;
        fill_row(exchange_.number, peer, row, expected);
        ASSERT_EQ(std::memcmp(received_.data() + place, expected.data(), row_bytes), 0)
            << "exchange " << exchange_.number << ", a row of rank " << peer;
        place += row_bytes;
      }
    }
    ASSERT_EQ(received_.size(), place) << "exchange " << exchange_.number;
  }

 private:
  [[nodiscard]] const std::vector<std::int32_t>& sent_by(int peer) const {
    return exchange_.rows[static_cast<std::size_t>(peer)][static_cast<std::size_t>(comm_.rank())];
  }

  Communicator& comm_;
  Exchange exchange_;
  std::vector<std::byte> matrix_;
  std::vector<std::int32_t> rows_;
  Counts counts_;
  Counts recv_counts_;
  PendingRows pending_;
  std::span<const std::byte> received_;
};

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

Exchange random_exchange(int number, int size, std::mt19937& random) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  Exchange exchange(number, size);
  exchange.row_bytes = 1 + below(below(8) == 0 ? 5000 : 96);
  exchange.stride_bytes = exchange.row_bytes + below(2) * below(40);
  exchange.matrix_rows = 1 + below(24);
  const int kind = below(4);  // 0: nearly nothing; 1: one receiver; else: anything
  const int hot = below(size);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from == to || (kind == 0 && below(8) != 0) || (kind == 1 && to != hot)) continue;
      const int count = below(below(6) == 0 ? 60 : 9);
      auto& part = exchange.rows[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
      for (int i = 0; i < count; ++i) {
        part.push_back(below(static_cast<int>(exchange.matrix_rows)));
      }
    }
  }
  return exchange;
}

/// What rank `rank` brings to a sum: values of many magnitudes, so that the order shows.
std::vector<float> summands(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<float> values(count);
  for (float& value : values) {
    const float mantissa = static_cast<float>(random() % 20001) - 10000.0f;
    value = std::ldexp(mantissa, static_cast<int>(random() % 40) - 20);
  }
  return values;
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
  for (int round = 0; round < 50; ++round) {
    Counts send(ranks);
    Counts recv(ranks);
    for (int p = 0; p < size; ++p) {
      send[static_cast<std::size_t>(p)] = comm.rank() * 1000 + p + (std::int64_t{round} << 40);
    }
    comm.start_counts(send, recv).wait();
    for (int p = 0; p < size; ++p) {
      ASSERT_EQ(recv[static_cast<std::size_t>(p)],
                p * 1000 + comm.rank() + (std::int64_t{round} << 40));
    }
  }
  for (const std::size_t count : {1u, 3u, 20000u}) {
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

void ordered_sums(Communicator& comm) {
  for (const std::size_t count : {0u, 1u, 7u, 1023u, 1025u, 40000u}) {
    std::vector<float> expected = summands(0, count);
    for (int rank = 1; rank < comm.size(); ++rank) {
      const std::vector<float> theirs = summands(rank, count);
      for (std::size_t i = 0; i < count; ++i) expected[i] += theirs[i];
    }
    std::vector<float> values = summands(comm.rank(), count);
    comm.sum(values);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]));
    }
  }
}

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
      run(comm, pattern(++number, size, row_bytes, rows, [](int, int) { return true; }));
      run(comm, pattern(++number, size, row_bytes, rows, [](int, int) { return false; }));
    }
  }
  Exchange repeated = pattern(++number, size, 48, 3, [](int, int) { return true; });
  for (auto& sender : repeated.rows) {
    for (auto& part : sender) std::fill(part.begin(), part.end(), 2);
  }
  run(comm, std::move(repeated));
}

void growing_rows(Communicator& comm) {
  int number = 1000;
  const auto all = [](int, int) { return true; };
  for (const int rows : {1, 40, 3, 400, 1, 1500, 20}) {
    run(comm, pattern(++number, comm.size(), 1031, rows, all));
  }
  run(comm, pattern(++number, comm.size(), 300007, 4, all));
  for (int hot = 0; hot < comm.size(); ++hot) {  // only one rank's buffer grows
    run(comm, pattern(++number, comm.size(), 2048, 2000 + 500 * hot,
                      [&](int, int to) { return to == hot; }));
    run(comm, pattern(++number, comm.size(), 2048, 2, all));
  }
}

void counts_under_way(Communicator& comm) {
  constexpr std::size_t kMany = 21;  // more than there are places
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::mt19937 random(7);
  for (int round = 0; round < 5; ++round) {
    std::vector<Counts> send(kMany, Counts(ranks));
    std::vector<Counts> recv(kMany, Counts(ranks));
    std::vector<PendingCounts> pending;
    for (std::size_t i = 0; i < kMany; ++i) {
      for (std::size_t p = 0; p < ranks; ++p) {
        send[i][p] = static_cast<std::int64_t>(i * 10000 + p * 100) + comm.rank();
      }
      pending.push_back(comm.start_counts(send[i], recv[i]));
      if (i % 4 == 2) comm.barrier();  // other calls come between
    }
    std::vector<std::size_t> order(kMany);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (round > 0) std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      pending[i].wait();
      for (std::size_t p = 0; p < ranks; ++p) {
        ASSERT_EQ(recv[i][p], static_cast<std::int64_t>(
                                  i * 10000 + static_cast<std::size_t>(comm.rank()) * 100 + p));
      }
    }
  }
}

void exchanges_under_way(Communicator& comm) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const std::size_t many = 1 + random() % 20;  // more than there are places
    std::vector<std::unique_ptr<Side>> sides;
    for (std::size_t i = 0; i < many; ++i) {
      const int number = 2000 + 100 * round + static_cast<int>(i);
      sides.push_back(std::make_unique<Side>(comm, random_exchange(number, comm.size(), random)));
      sides.back()->start();
      if (round % 3 == 0 && i % 4 == 1) comm.barrier();
    }
    std::vector<std::size_t> order(many);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    if (round % 2 == 0)
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(comm.rank())));
    for (const std::size_t i : order) sides[i]->wait();
    for (const auto& side : sides) side->verify();  // rows live as long as their handle
  }
}

void rows_move_without_waiting(Communicator& comm) {
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    Side side(comm, random_exchange(5001 + 2 * round, comm.size(), random));
    side.start();
    while (!side.is_done()) {
      comm.progress();
      std::this_thread::yield();
    }
    side.wait();
  }
}

void random_exchanges(Communicator& comm, int num_exchanges) {
  std::mt19937 random(static_cast<unsigned>(comm.size()) * 17);
  for (int i = 0; i < num_exchanges; ++i) {
    run(comm, random_exchange(10000 + i, comm.size(), random));
    if (testing::Test::HasFatalFailure()) return;
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
}

void shared_memory(Communicator& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto size = static_cast<std::size_t>(comm.size());
  const std::shared_ptr<SharedMemory> kept = comm.allocate_shared(64);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{3000001}}) {
    const auto memory = comm.allocate_shared(static_cast<std::int64_t>(bytes));
    const std::span<std::byte> data = memory->bytes();
    ASSERT_EQ(data.size(), bytes);
    ASSERT_EQ(std::count(data.begin(), data.end(), std::byte{0}),
              static_cast<std::ptrdiff_t>(bytes));
    comm.barrier();
    const std::vector<std::byte> expected = row_of(1, 0, 0, bytes);
    for (std::size_t i = rank; i < bytes; i += size) data[i] = expected[i];
    comm.barrier();
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), data.begin()));
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
  const auto wait_in = [&](const std::function<void()>& call) {
    comm.barrier();
    const double before = cpu_seconds();
    if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    call();
    EXPECT_LT(cpu_seconds() - before, 0.1) << "rank " << comm.rank();
  };
  Counts counts(static_cast<std::size_t>(comm.size()), 1);
  wait_in([&] { comm.barrier(); });
  const Counts send = counts;
  wait_in([&] { comm.start_counts(send, counts).wait(); });
}

void everything(Communicator& comm, int num_exchanges) {
  collectives(comm);
  ordered_sums(comm);
  row_patterns(comm);
  growing_rows(comm);
  counts_under_way(comm);
  exchanges_under_way(comm);
  rows_move_without_waiting(comm);
  random_exchanges(comm, num_exchanges);
  if (comm.size() > 1) splits(comm);
  shared_memory(*comm.split_node());
  long_waits_cost_little(comm);
}

}  // namespace moesaic::conformance
