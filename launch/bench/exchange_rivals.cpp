#include "launch/bench/exchange_rivals.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace moesaic {
namespace {

/// The rank of `node` that rank `home` of another node sends to: the i-th of a node to the (i mod
/// n)-th of the other.
int partner(const ExchangeLoads& loads, int home, int node) {
  std::vector<int> there;
  int place = 0;  // of home in its node
  for (int rank = 0; rank < loads.num_ranks(); ++rank) {
    if (loads.node_of(rank) == node) there.push_back(rank);
    if (rank < home && loads.node_of(rank) == loads.node_of(home)) ++place;
  }
  return there[static_cast<std::size_t>(place) % there.size()];
}

std::int64_t total(const std::vector<std::int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

}  // namespace

ExchangeRivals::ExchangeRivals(MpiRivals& mpi, const ExchangeLoads& loads, int rank,
                               const std::array<RowMatrix, 2>& rows_and_results)
    : mpi_(&mpi), rank_(rank) {
  const auto ranks = static_cast<std::size_t>(loads.num_ranks());
  for (std::size_t leg = 0; leg < legs_.size(); ++leg) {
    legs_[leg].matrix = rows_and_results[leg];
    for (auto Leg::*bytes : {&Leg::to, &Leg::from, &Leg::far_to, &Leg::far_from}) {
      (legs_[leg].*bytes).resize(ranks);
    }
  }
  for (int peer = 0; peer < loads.num_ranks(); ++peer) {
    is_near_.push_back(peer != rank && loads.node_of(peer) == loads.node_of(rank));
    if (peer != rank) count(loads, peer);
  }
  make_room();
}

void ExchangeRivals::count(const ExchangeLoads& loads, int peer) {
  auto& [rows, results] = legs_;
  const auto p = static_cast<std::size_t>(peer);
  rows.to[p] = loads.rows(rank_, peer) * rows.matrix.row_bytes;
  rows.from[p] = loads.rows(peer, rank_) * rows.matrix.row_bytes;
  results.to[p] = loads.results(peer, rank_) * results.matrix.row_bytes;
  results.from[p] = loads.results(rank_, peer) * results.matrix.row_bytes;
  if (is_near_[p]) near_bytes_ += rows.to[p] + results.to[p];
  const int own_node = loads.node_of(rank_);
  const int node = loads.node_of(peer);
  if (node == own_node) return;
  if (partner(loads, rank_, node) == peer) {
    rows.far_to[p] = loads.rows_of_node(rank_, node) * rows.matrix.row_bytes;
    results.far_from[p] = loads.results_of_node(rank_, node) * results.matrix.row_bytes;
  }
  if (partner(loads, peer, own_node) == rank_) {
    rows.far_from[p] = loads.rows_of_node(peer, own_node) * rows.matrix.row_bytes;
    results.far_to[p] = loads.results_of_node(peer, own_node) * results.matrix.row_bytes;
  }
}

void ExchangeRivals::make_room() {
  for (const Leg& leg : legs_) {
    packed_.reserve(std::max(total(leg.to), total(leg.far_to)));
    received_.reserve(std::max(total(leg.from), total(leg.far_from)));
  }
}

std::byte* ExchangeRivals::copy(const RowMatrix& matrix, std::int64_t bytes, std::byte* to) const {
  std::int64_t row = 0;
  for (std::int64_t left = bytes; left > 0; left -= matrix.row_bytes) {
    std::memcpy(to, matrix.base + row * matrix.stride_bytes,
                static_cast<std::size_t>(matrix.row_bytes));
    to += matrix.row_bytes;
    row = row + 1 == matrix.rows ? 0 : row + 1;
  }
  return to;
}

void ExchangeRivals::copy_near() {
  for (const Leg& leg : legs_) {
    std::byte* to = packed_.data();
    for (std::size_t peer = 0; peer < leg.to.size(); ++peer) {
      if (is_near_[peer]) to = copy(leg.matrix, leg.to[peer], to);
    }
  }
}

void ExchangeRivals::all_to_all() {
  for (const Leg& leg : legs_) {
    std::byte* to = packed_.data();
    for (const std::int64_t bytes : leg.to) to = copy(leg.matrix, bytes, to);
    mpi_->all_to_all({packed_.span(), leg.to}, {received_.span(), leg.from});
  }
}

void ExchangeRivals::stream_far() {
  for (const Leg& leg : legs_) {
    mpi_->stream({packed_.span(), leg.far_to}, {received_.span(), leg.far_from});
  }
}

}  // namespace moesaic
