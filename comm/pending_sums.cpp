#include "comm/pending_sums.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"

namespace moesaic {
namespace {

/// A sum has time for an exchange while so many later ones are started.
constexpr std::int64_t kStartsOfRoad = 2;
constexpr std::int64_t kMostRoads = 3;
/// Values of a sum under way stand in its rows, and in those that come of two roads.
constexpr std::int64_t kCopies = 3;
constexpr std::int64_t kValueBytes = sizeof(std::int64_t);

/// Sums that leave the 64 bits are found by who knows what they may be.
void add(const std::int64_t* from, std::int64_t count, std::int64_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(to[i]) +
                                      static_cast<std::uint64_t>(from[i]));
  }
}

}  // namespace

std::int64_t PendingSums::most_bytes(std::int64_t values) {
  const std::int64_t under_way = kMostRoads * kStartsOfRoad * kMostValues;
  return kCopies * kValueBytes * std::min(values, under_way);
}

PendingSums::PendingSums(Communicator& ranks) {
  if (ranks.size() == 1) return;
  ranks_ = ranks.split(0, ranks.rank());
  nodes_ = map_nodes(*ranks_, *ranks_->split_node());
  const auto [least, most] = std::ranges::minmax_element(
      nodes_.nodes, {}, [](const std::vector<int>& its) { return its.size(); });
  adders_ = least->size();
  node_ = nodes_.place_of(ranks_->rank()).node;
  own_ = static_cast<std::size_t>(nodes_.place_of(ranks_->rank()).rank);
  if (most->size() > 1) roads_.push_back(node_road());
  if (nodes_.nodes.size() > 1) roads_.push_back(far_road());
  roads_.push_back(last_road());
}

PendingSums::Road PendingSums::empty_road(bool adds) const {
  const auto num_ranks = static_cast<std::size_t>(ranks_->size());
  return {.adds = adds,
          .rows = {},
          .counts = std::vector<std::int64_t>(num_ranks),
          .expected = std::vector<std::int64_t>(num_ranks),
          .places = {}};
}

/// Adder j of a node gets all its slices (j, any) of every rank there.
PendingSums::Road PendingSums::node_road() const {
  Road road = empty_road(true);
  const std::vector<int>& ranks = nodes_.ranks_of(node_);
  const std::size_t num_nodes = nodes_.nodes.size();
  for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
    if (peer == own_) continue;
    for (std::size_t node = 0; node < num_nodes; ++node) {
      if (peer < adders_) road.rows.push_back(slice(peer, node));
      if (own_ < adders_) road.places.push_back(slice(own_, node));
    }
    const auto rank = static_cast<std::size_t>(ranks[peer]);
    if (peer < adders_) road.counts[rank] = static_cast<std::int64_t>(num_nodes);
    if (own_ < adders_) road.expected[rank] = static_cast<std::int64_t>(num_nodes);
  }
  return road;
}

/// Adder j of node k gets slice (j, k) of adder j of every other node.
PendingSums::Road PendingSums::far_road() const {
  Road road = empty_road(true);
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const NodeMap::Place& place = nodes_.place_of(rank);
    const bool is_alike = own_ < adders_ && static_cast<std::size_t>(place.rank) == own_;
    if (!is_alike || place.node == node_) continue;
    road.rows.push_back(slice(own_, place.node));
    road.places.push_back(slice(own_, node_));
    road.counts[static_cast<std::size_t>(rank)] = 1;
    road.expected[static_cast<std::size_t>(rank)] = 1;
  }
  return road;
}

/// Everybody gets slice (j, k) of adder j of node k.
PendingSums::Road PendingSums::last_road() const {
  Road road = empty_road(false);
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    if (rank == ranks_->rank()) continue;
    if (own_ < adders_) {
      road.rows.push_back(slice(own_, node_));
      road.counts[static_cast<std::size_t>(rank)] = 1;
    }
    const NodeMap::Place& place = nodes_.place_of(rank);
    if (static_cast<std::size_t>(place.rank) < adders_) {
      road.places.push_back(slice(static_cast<std::size_t>(place.rank), place.node));
      road.expected[static_cast<std::size_t>(rank)] = 1;
    }
  }
  return road;
}

void PendingSums::take_values(Sum& sum) const {
  std::int64_t count = 0;
  for (const std::span<std::int64_t> part : sum.parts) count += std::ssize(part);
  require(count <= kMostValues, ErrorKind::internal, "a sum of {} values, at most {}", count,
          kMostValues);
  const auto slices = static_cast<std::int64_t>(adders_ * nodes_.nodes.size());
  sum.row_values = std::max<std::int64_t>(1, divide_up(count, slices));
  sum.values.reserve(slices * sum.row_values);
  std::int64_t* to = sum.values.data();
  for (const std::span<std::int64_t> part : sum.parts) to = std::ranges::copy(part, to).out;
  std::fill(to, sum.values.data() + slices * sum.row_values, std::int64_t{0});
}

void PendingSums::give_values(Sum& sum) {
  const std::int64_t* from = sum.values.data();
  for (const std::span<std::int64_t> part : sum.parts) {
    std::copy_n(from, part.size(), part.begin());
    from += part.size();
  }
}

void PendingSums::travel(Sum& sum) {
  const Road& road = roads_[sum.road];
  const std::int64_t row_bytes = sum.row_values * kValueBytes;
  sum.rows = ranks_->exchange_rows({.base = reinterpret_cast<const std::byte*>(sum.values.data()),
                                    .row_bytes = row_bytes,
                                    .stride_bytes = row_bytes,
                                    .rows = road.rows,
                                    .counts = road.counts,
                                    .label = sum.label},
                                   road.expected);
}

/// At the end of its road, and on to the next one.
void PendingSums::arrive(Sum& sum) {
  const Road& road = roads_[sum.road];
  const ReceivedRows& received = sum.rows.wait();
  for (std::size_t row = 0; row < road.places.size(); ++row) {
    const auto* const from = reinterpret_cast<const std::int64_t*>(received.rows[row]);
    std::int64_t* const to = sum.values.data() + road.places[row] * sum.row_values;
    if (road.adds) {
      add(from, sum.row_values, to);
    } else {
      std::copy_n(from, sum.row_values, to);
    }
  }
  sum.rows.reset();
  if (++sum.road < roads_.size()) return travel(sum);
  give_values(sum);
}

void PendingSums::drop_done() {
  while (!under_way_.empty() && under_way_.front()->road == roads_.size()) {
    spare_.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
    ++num_done_;
  }
}

std::int64_t PendingSums::start_sum(std::span<const std::span<std::int64_t>> parts,
                                    const RowLabel& label) {
  ++num_started_;
  if (ranks_ == nullptr) return num_done_ = num_started_;
  for (const auto& sum : under_way_) {
    if (++sum->starts % kStartsOfRoad == 0) arrive(*sum);
  }
  drop_done();
  if (spare_.empty()) spare_.push_back(std::make_unique<Sum>());
  Sum& sum = *under_way_.emplace_back(std::move(spare_.back()));
  spare_.pop_back();
  sum.parts.assign(parts.begin(), parts.end());
  sum.label = label;
  sum.road = 0;
  sum.starts = 0;
  take_values(sum);
  travel(sum);
  return num_started_;
}

void PendingSums::finish() {
  while (!under_way_.empty()) {
    for (const auto& sum : under_way_) arrive(*sum);
    drop_done();
  }
}

}  // namespace moesaic
