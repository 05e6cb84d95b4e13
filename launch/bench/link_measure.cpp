#include "launch/bench/link_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "comm/mpi_rivals.h"
#include "comm/row_memory.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/roofs.h"
#include "launch/job/gather.h"

namespace moesaic {
namespace {

constexpr std::int64_t kShortRow = 64;
constexpr std::int64_t kLongRow = 4096;
/// Of one rank to all its peers.
constexpr std::int64_t kRowsSent = 1024;
constexpr int kAttempts = 30;
/// Of a pair, of which there may be many.
constexpr std::int64_t kPairRows = 256;
constexpr int kPairAttempts = 5;
constexpr int kRounds = 100;     // of a short message there and back
constexpr double kLeast = 1e-8;  // seconds: what a clock tells apart

/// An exchange of rows that is made again and again, from memory that ranks of a node read in
/// place.
class Exchange {
 public:
  /// `rows[from][to]`, the same on all ranks.
  Exchange(Communicator& world, const std::vector<std::vector<std::int64_t>>& rows,
           std::int64_t row_bytes)
      : world_(world), row_bytes_(row_bytes), data_(world.make_row_memory()) {
    const auto self = static_cast<std::size_t>(world.rank());
    send_counts_ = rows[self];
    for (const auto& from : rows) receive_counts_.push_back(from[self]);
    // No row goes to two ranks: between nodes it would travel once.
    rows_.resize(static_cast<std::size_t>(
        std::reduce(send_counts_.begin(), send_counts_.end(), std::int64_t{0})));
    std::iota(rows_.begin(), rows_.end(), 0);
    const std::int64_t bytes = std::max<std::int64_t>(1, std::ssize(rows_)) * row_bytes;
    data_.renew(bytes);
    std::memset(data_.data(), 1, static_cast<std::size_t>(bytes));
  }

  /// Seconds from when all ranks start it until all have their rows.
  double run() {
    return time_together(world_, [&] {
      (void)world_
          .exchange_rows({.base = data_.data(),
                          .row_bytes = row_bytes_,
                          .stride_bytes = row_bytes_,
                          .rows = rows_,
                          .counts = send_counts_,
                          .label = RowLabel{}.at("measuring")},
                         receive_counts_)
          .wait();
    });
  }

 private:
  Communicator& world_;
  std::int64_t row_bytes_;
  SentRows<std::byte> data_;
  std::vector<std::int32_t> rows_;
  std::vector<std::int64_t> send_counts_;
  std::vector<std::int64_t> receive_counts_;
};

/// What an exchange in which `sends` takes, with `rows` rows of each sender, shared out over its
/// receivers. Collective.
double measure(Communicator& world, const SendsTo& sends, std::int64_t rows, std::int64_t row_bytes,
               int attempts = kAttempts) {
  const int size = world.size();
  std::vector<std::vector<std::int64_t>> counts;
  for (int from = 0; from < size; ++from) {
    std::vector<std::int64_t>& to_all = counts.emplace_back(static_cast<std::size_t>(size));
    const auto receivers = std::count_if(to_all.begin(), to_all.end(), [&](std::int64_t& count) {
      return sends(from, static_cast<int>(&count - to_all.data()));
    });
    for (int to = 0; to < size; ++to) {
      if (!sends(from, to)) continue;
      to_all[static_cast<std::size_t>(to)] = std::max<std::int64_t>(1, rows / receivers);
    }
  }
  Exchange exchange(world, counts, row_bytes);
  (void)exchange.run();  // makes room
  std::vector<double> seconds;
  for (int i = 0; i < attempts; ++i) seconds.push_back(exchange.run());
  return lower_quartile(std::move(seconds));
}

}  // namespace

std::optional<LinkRates> measure_link(Communicator& world, const std::vector<int>& nodes,
                                      bool is_inside) {
  const auto node_of = [&](int rank) { return nodes[static_cast<std::size_t>(rank)]; };
  const SendsTo are_linked = [&](int from, int to) {
    return from != to && (node_of(from) == node_of(to)) == is_inside;
  };
  const auto is_first_of_node = [&](int rank) {
    return rank == 0 || node_of(rank - 1) != node_of(rank);
  };
  const auto next = [&](int from) {  // the next rank that is linked with it
    for (int step = 1; step < world.size(); ++step) {
      const int to = (from + step) % world.size();
      if (are_linked(from, to)) return to;
    }
    return -1;
  };
  if (next(0) < 0) return std::nullopt;
  const auto on_node = static_cast<double>(std::count(nodes.begin(), nodes.end(), nodes[0]));
  const auto nothing = [](int, int) { return false; };
  const double idle = measure(world, nothing, 0, kShortRow);
  const double one_row = measure(
      world, [&](int from, int to) { return to == next(from); }, 1, kShortRow);
  const double one_rank = measure(
      world, [&](int from, int to) { return is_first_of_node(from) && are_linked(from, to); },
      kRowsSent, kLongRow);
  const double all_ranks = measure(world, are_linked, kRowsSent, kLongRow);
  constexpr auto kBytes = static_cast<double>(kRowsSent * kLongRow);
  // Every other node gets a message also where there are no rows.
  const double others = *std::ranges::max_element(nodes);
  return LinkRates{
      .latency_seconds = std::max(kLeast, is_inside ? one_row - idle : idle / others),
      .one_rank_bytes_per_second = kBytes / std::max(kLeast, one_rank - one_row),
      .all_ranks_bytes_per_second = on_node * kBytes / std::max(kLeast, all_ranks - one_row)};
}

PairRates measure_pair(Communicator& world, int from, int to) {
  MpiRivals messages;
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  messages.ping_pong(from, to, kRounds);
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
  std::int64_t nanoseconds = world.rank() == from ? std::llround(taken.count()) : 0;
  world.max({&nanoseconds, 1});
  const double latency = static_cast<double>(nanoseconds) * 1e-9 / (2 * kRounds);

  const SendsTo is_pair = [&](int sender, int receiver) {
    return sender == from && receiver == to;
  };
  const double seconds = measure(world, is_pair, kPairRows, kLongRow, kPairAttempts);
  return {.latency_seconds = latency,
          .bytes_per_second =
              static_cast<double>(kPairRows * kLongRow) / std::max(kLeast, seconds - latency)};
}

}  // namespace moesaic
