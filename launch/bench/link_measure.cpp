#include "launch/bench/link_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "comm/mpi_rivals.h"
#include "comm/row_memory.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/roofs.h"

namespace moesaic {
namespace {

constexpr std::int64_t kShortRow = 64;
constexpr std::int64_t kLongRow = 4096;
/// Of one rank to all its peers.
constexpr std::int64_t kRowsSent = 1024;
constexpr int kAttempts = 30;
constexpr int kMostSeries = 3;  // of so many attempts, until one of them tells
/// Of a pair, of which there may be many.
constexpr std::int64_t kPairRows = 256;
constexpr int kPairAttempts = 7;
constexpr int kRounds = 20;  // of a short message there and back, in an attempt

/// Which ranks send rows to which.
using SendsTo = std::function<bool(int from, int to)>;

/// An exchange of rows that is made again and again, from memory that ranks of a node read in
/// place.
class Exchange {
 public:
  /// `rows` of each sender, shared out over its receivers. Collective.
  Exchange(Communicator& world, const SendsTo& sends, std::int64_t rows_of_sender,
           std::int64_t row_bytes)
      : world_(world), row_bytes_(row_bytes), data_(world.make_row_memory()) {
    const std::vector<std::vector<std::int64_t>> rows = shared_out(world, sends, rows_of_sender);
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
    (void)run();  // makes room
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
  /// Rows of [from][to], the same on all ranks.
  static std::vector<std::vector<std::int64_t>> shared_out(const Communicator& world,
                                                           const SendsTo& sends,
                                                           std::int64_t rows) {
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
    return counts;
  }

  Communicator& world_;
  std::int64_t row_bytes_;
  SentRows<std::byte> data_;
  std::vector<std::int32_t> rows_;
  std::vector<std::int64_t> send_counts_;
  std::vector<std::int64_t> receive_counts_;
};

/// Of one short message, one way, as `from` sees it; the same on all ranks. Collective.
double message_seconds(Communicator& world, MpiRivals& messages, int from, int to) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  messages.ping_pong(from, to, kRounds);
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
  std::int64_t nanoseconds = world.rank() == from ? std::llround(taken.count()) : 0;
  world.max({&nanoseconds, 1});
  return static_cast<double>(nanoseconds) * 1e-9 / (2 * kRounds);
}

}  // namespace

MeasuredLink link_rates(const LinkTimes& times) {
  MeasuredLink link;
  const auto beyond = [](const std::vector<double>& longer, const std::vector<double>& shorter) {
    return longer_by(longer, shorter).value_or(lower_quartile(longer));
  };
  link.is_noisy =
      !longer_by(times.one_rank, times.one_row) || !longer_by(times.all_ranks, times.one_row);
  link.rates = {.latency_seconds = times.other_nodes > 0
                                       ? lower_quartile(times.idle) / times.other_nodes
                                       : beyond(times.one_row, times.idle),
                .one_rank_bytes_per_second = times.bytes / beyond(times.one_rank, times.one_row),
                .all_ranks_bytes_per_second =
                    times.ranks_of_node * times.bytes / beyond(times.all_ranks, times.one_row)};
  return link;
}

std::optional<MeasuredLink> measure_link(Communicator& world, const std::vector<int>& nodes,
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
  Exchange idle(
      world, [](int, int) { return false; }, 0, kShortRow);
  Exchange one_row(
      world, [&](int from, int to) { return to == next(from); }, 1, kShortRow);
  Exchange one_rank(
      world, [&](int from, int to) { return is_first_of_node(from) && are_linked(from, to); },
      kRowsSent, kLongRow);
  Exchange all_ranks(world, are_linked, kRowsSent, kLongRow);
  MeasuredLink link{.is_noisy = true};
  for (int series = 0; series < kMostSeries && link.is_noisy; ++series) {
    LinkTimes times{
        .bytes = static_cast<double>(kRowsSent * kLongRow),
        .ranks_of_node = static_cast<double>(std::count(nodes.begin(), nodes.end(), nodes[0])),
        .other_nodes = is_inside ? 0.0 : static_cast<double>(*std::ranges::max_element(nodes))};
    for (int i = 0; i < kAttempts; ++i) {
      times.idle.push_back(idle.run());
      times.one_row.push_back(one_row.run());
      times.one_rank.push_back(one_rank.run());
      times.all_ranks.push_back(all_ranks.run());
    }
    link = link_rates(times);  // the same on all ranks
  }
  return link;
}

PairRates measure_pair(Communicator& world, int from, int to) {
  const SendsTo is_pair = [&](int sender, int receiver) {
    return sender == from && receiver == to;
  };
  MpiRivals messages;
  Exchange one_row(world, is_pair, 1, kLongRow);
  Exchange all_rows(world, is_pair, kPairRows, kLongRow);
  std::vector<double> of_message;
  std::vector<double> of_row;
  std::vector<double> of_rows;
  for (int i = 0; i < kPairAttempts; ++i) {
    of_message.push_back(message_seconds(world, messages, from, to));
    of_row.push_back(one_row.run());
    of_rows.push_back(all_rows.run());
  }
  PairRates rates{.latency_seconds = lower_quartile(of_message)};
  if (const auto seconds = longer_by(of_rows, of_row)) {
    rates.bytes_per_second = static_cast<double>((kPairRows - 1) * kLongRow) / *seconds;
  }
  return rates;
}

}  // namespace moesaic
