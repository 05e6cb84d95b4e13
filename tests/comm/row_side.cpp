#include "tests/comm/row_side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace moesaic::conformance {
namespace {

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

void fill_row(int exchange, int rank, std::int64_t row, std::span<std::byte> bytes) {
  const auto part = static_cast<std::uint64_t>(exchange) << 16 | static_cast<std::uint64_t>(rank);
  const std::uint64_t seed = scramble(scramble(part) + static_cast<std::uint64_t>(row));
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = scramble(seed + i);
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
  }
}

Exchange random_exchange(int number, int size, std::mt19937& random) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  Exchange exchange(number, size);
  exchange.row_bytes = 1 + below(below(8) == 0 ? 5000 : 96);
  exchange.stride_bytes = exchange.row_bytes + below(2) * below(40);
  exchange.matrix_rows = 1 + below(24);
  exchange.later = below(4) == 0;
  exchange.in_place = below(2) == 0;
  if (!exchange.later) exchange.tag_bytes = below(static_cast<int>(exchange.row_bytes) + 1);
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
      if (below(3) == 0) std::ranges::sort(part);
    }
  }
  return exchange;
}

Side::Side(Communicator& comm, Exchange exchange, RowMemory* memory)
    : comm_(comm), exchange_(std::move(exchange)) {
  const std::int64_t bytes = exchange_.matrix_rows * exchange_.stride_bytes;
  if (exchange_.in_place && memory == nullptr) {
    in_place_ = comm.make_row_memory();
    memory = in_place_.get();
  }
  if (memory != nullptr) {
    matrix_ = {memory->renew(bytes), static_cast<std::size_t>(bytes)};
  } else {
    own_.resize(static_cast<std::size_t>(bytes));
    matrix_ = own_;
  }
  for (std::int64_t row = 0; !exchange_.later && row < exchange_.matrix_rows; ++row) write_row(row);
  const auto& mine = exchange_.rows[static_cast<std::size_t>(comm.rank())];
  for (const auto& part : mine) {
    counts_.push_back(std::ssize(part));
    rows_.insert(rows_.end(), part.begin(), part.end());
  }
  for (int peer = 0; exchange_.number % 2 == 0 && peer < comm.size(); ++peer) {
    expected_.push_back(std::ssize(sent_by(peer)));
  }
}

void Side::write_row(std::int64_t row) {
  fill_row(exchange_.number, comm_.rank(), row,
           matrix_.subspan(static_cast<std::size_t>(row * exchange_.stride_bytes),
                           static_cast<std::size_t>(exchange_.row_bytes)));
}

void Side::start() {
  pending_ = comm_.exchange_rows({.base = matrix_.data(),
                                  .row_bytes = exchange_.row_bytes,
                                  .stride_bytes = exchange_.stride_bytes,
                                  .rows = rows_,
                                  .counts = counts_,
                                  .tag_bytes = exchange_.tag_bytes,
                                  .later_rows = exchange_.later ? exchange_.matrix_rows : 0,
                                  .label = {.step = exchange_.number}},
                                 expected_);
}

void Side::write_rows() {
  if (!std::exchange(exchange_.later, false)) return;
  std::vector<std::int64_t> starts;  // of runs of rows, finished in any order
  for (std::int64_t row = 0; row < exchange_.matrix_rows; row += 7) starts.push_back(row);
  std::ranges::shuffle(starts, std::mt19937(static_cast<unsigned>(exchange_.number)));
  for (const std::int64_t first : starts) {
    const std::int64_t end = std::min(first + 7, exchange_.matrix_rows);
    // A matrix that nobody reads may be another one's by now.
    for (std::int64_t row = first; row < end && !rows_.empty(); ++row) write_row(row);
    pending_.mark_ready(first, end - first);
  }
}

void Side::wait() {
  write_rows();
  const ReceivedRows early = pending_.wait_for_tags();
  received_ = pending_.wait();
  ASSERT_EQ(early.rows.size(), received_.rows.size());
  for (int peer = 0; peer < comm_.size(); ++peer) {
    ASSERT_EQ(received_.counts[static_cast<std::size_t>(peer)], std::ssize(sent_by(peer)));
    ASSERT_EQ(pending_.num_here(peer), std::ssize(sent_by(peer)));
  }
  verify();
}

void Side::verify() const {
  std::vector<std::byte> expected(static_cast<std::size_t>(exchange_.row_bytes));
  const auto tag_bytes = static_cast<std::size_t>(exchange_.tag_bytes);
  const std::size_t body_bytes = expected.size() - tag_bytes;
  ASSERT_EQ(received_.tags.size(), tag_bytes > 0 ? received_.rows.size() : 0);
  std::size_t next = 0;
  for (int peer = 0; peer < comm_.size(); ++peer) {
    for (const std::int32_t row : sent_by(peer)) {
      ASSERT_LT(next, received_.rows.size()) << "exchange " << exchange_.number;
      fill_row(exchange_.number, peer, row, expected);
      const bool same =
          std::memcmp(received_.rows[next], expected.data(), body_bytes) == 0 &&
          (tag_bytes == 0 ||
           std::memcmp(received_.tags[next], expected.data() + body_bytes, tag_bytes) == 0);
      ASSERT_TRUE(same) << "exchange " << exchange_.number << ", row " << row << " of rank "
                        << peer;
      ++next;
    }
  }
  ASSERT_EQ(received_.rows.size(), next) << "exchange " << exchange_.number;
}

}  // namespace moesaic::conformance
