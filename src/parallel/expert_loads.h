#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "src/parallel/expert_popularity.h"

namespace moesaic {

/// Ranks that share the work, on equal nodes.
struct CostRanks {
  int ranks = 1;
  int ranks_per_node = 1;
  int threads = 1;  // of a rank
  int expert_replicas = 1;

  [[nodiscard]] int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  /// Of the node that has most of them.
  [[nodiscard]] int on_node() const { return ranks < ranks_per_node ? ranks : ranks_per_node; }
  /// That share one copy of the experts.
  [[nodiscard]] int sharers() const { return ranks / expert_replicas; }
};

/// What the tokens of a step ask of a layer's experts.
struct ExpertQuestion {
  std::int64_t experts = 0;
  std::int64_t topk = 0;
  std::int64_t tokens = 0;  // of all ranks that share the experts
};

/// What ranks do for the experts of one layer, expected.
struct LayerLoad {
  /// Of the rank with most to do: experts by the number of their rows.
  std::map<std::int64_t, double> busiest;
  double max_over_mean = 1;  // of the ranks' rows

  // A token's, expected.
  double rows = 0;     // to other ranks: once to each that has an expert of it
  double results = 0;  // from other ranks: one a choice
  // Of the node that sends most: rows and results that stay inside it, and that leave it.
  double node_rows = 0;
  double node_results = 0;
  double link_rows = 0;
  double link_results = 0;
  // A rank's, there and back: peers that it has rows or results for.
  double node_messages = 0;
  double link_messages = 0;
  double link_token_rows = 0;     // a token's rows that leave its node
  double link_token_results = 0;  // and results
};

/// Draws tokens with `rates` and looks at what they ask of the ranks, which own experts by an
/// ExpertPlacement and have equal numbers of tokens. Deterministic; `layer` makes draws differ.
[[nodiscard]] LayerLoad draw_load(const ExpertQuestion& question, const CostRanks& ranks,
                                  const std::vector<double>& rates, std::int64_t layer);

}  // namespace moesaic
