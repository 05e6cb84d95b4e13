#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "launch/shapes/layer_routing.h"
#include "src/moe/combine.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

/// Bytes of what travels.
struct ExchangeSizes {
  std::int64_t activations = 0;  // of a token's row
  std::int64_t tag = 0;          // its experts' ids, with Combine::fast their weights too
  std::int64_t result = 0;       // of one choice, or of those of a rank or node added
  std::int64_t part = 0;         // in f32, in the node whose ranks add theirs, else 0
};

/// What an exchange has to move, from the routing alone; the same on every rank.
class ExchangeLoads {
 public:
  /// `nodes` [ranks]: the node of each, from 0 on. Every rank has as many tokens of `routing`.
  /// With Combine::fast and several nodes ranks of a node add theirs.
  ExchangeLoads(const LayerRouting& routing, const ExpertPlacement& placement,
                std::span<const int> nodes, Combine combine = Combine::ordered);

  [[nodiscard]] int num_ranks() const noexcept { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] int node_of(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int num_nodes() const noexcept { return num_nodes_; }
  /// Tokens of `home` that have an expert at `rank`, and the results that come back for them.
  [[nodiscard]] std::int64_t rows(int home, int rank) const { return rows_[at_rank(home, rank)]; }
  [[nodiscard]] std::int64_t results(int home, int rank) const {
    return results_[at_rank(home, rank)];
  }
  /// Choices of tokens of `home` for experts at `rank`.
  [[nodiscard]] std::int64_t choices(int home, int rank) const {
    return choices_[at_rank(home, rank)];
  }
  /// Rows and results of all experts of a node: a token counts once.
  [[nodiscard]] std::int64_t rows_of_node(int home, int node) const {
    return node_rows_[at_node(home, node)];
  }
  [[nodiscard]] std::int64_t results_of_node(int home, int node) const {
    return node_results_[at_node(home, node)];
  }

  /// Choices of other ranks' experts for each row that is sent for them; NaN if there is none.
  [[nodiscard]] double choices_of_row() const;
  /// Bytes between nodes there and back, as docs/comm.md counts them: a token's row once to each
  /// other node that has an expert of it, the results of its ranks, and what says which rows these
  /// are.
  [[nodiscard]] std::int64_t far_bytes(const ExchangeSizes& sizes) const;

 private:
  [[nodiscard]] std::int64_t far_bytes(int rank, int node, const ExchangeSizes& sizes) const;
  [[nodiscard]] std::size_t at_rank(int home, int rank) const {
    return static_cast<std::size_t>(home * num_ranks() + rank);
  }
  [[nodiscard]] std::size_t at_node(int home, int node) const {
    return static_cast<std::size_t>(home * num_nodes_ + node);
  }

  std::vector<int> nodes_;  // [ranks]
  int num_nodes_;
  std::vector<std::int64_t> rows_, results_;            // [ranks, ranks]
  std::vector<std::int64_t> choices_;                   // [ranks, ranks]
  std::vector<bool> is_in_order_;                       // [ranks, ranks] results as they are sent
  std::vector<std::int64_t> node_rows_, node_results_;  // [ranks, nodes]
};

}  // namespace moesaic
