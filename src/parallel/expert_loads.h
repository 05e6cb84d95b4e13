#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "comm/far_message.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {

/// Ranks that share the work, on equal nodes.
struct CostRanks {
  int ranks = 1;
  int ranks_per_node = 1;
  int threads = 1;  // of a rank
  int expert_replicas = 1;
  bool by_messages = false;  // rows go to ranks of the same node as to others (--transport mpi)

  [[nodiscard]] int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  /// Of the node that has most of them.
  [[nodiscard]] int on_node() const { return ranks < ranks_per_node ? ranks : ranks_per_node; }
  /// That share one copy of the experts.
  [[nodiscard]] int sharers() const { return ranks / expert_replicas; }
  /// That pass rows on through memory: a node's, or each its own.
  [[nodiscard]] int near_ranks() const { return by_messages ? 1 : ranks_per_node; }
  /// Nodes, as rows travel, that these are on.
  [[nodiscard]] int sharer_nodes() const { return (sharers() + near_ranks() - 1) / near_ranks(); }
  /// Of so many texts, which all ranks take in turn, those of the ranks that share a copy of the
  /// experts: of the first copy, which has most.
  [[nodiscard]] std::int64_t texts_of_sharers(std::int64_t texts) const {
    const std::int64_t rest = texts % ranks;
    return texts / ranks * sharers() + (rest < sharers() ? rest : sharers());
  }
};

/// Bytes of what travels.
struct WireSizes {
  std::int64_t row_bytes = 0;     // of a token's row, with its tag
  std::int64_t tag_bytes = 0;     // of what says which experts are chosen
  std::int64_t result_bytes = 0;  // of one expert's result for it
  /// A rank adds its experts' results for it, and sends one; with several nodes one of the ranks of
  /// a node adds those of all, each of so many bytes. 0: none of this.
  std::int64_t part_bytes = 0;
  bool results_come_later = true;  // computed while they travel; not where a pass is kept

  [[nodiscard]] bool adds_parts() const noexcept { return part_bytes > 0; }
};

/// What a rank sends to another node: rows, each once however many ranks there want it.
struct FarRows {
  double rows = 0;
  double choices = 0;     // rows, counted for each of these ranks
  bool is_sorted = true;  // they are sent as they lie
};
/// Bytes and messages of that, to a node of `node_ranks` ranks. 0 rows are a message too.
[[nodiscard]] FarLayout layout_of(const FarRows& rows, int node_ranks, std::int64_t row_bytes,
                                  std::int64_t tag_bytes, bool come_later);

/// What the tokens of a step ask of a layer's experts.
struct ExpertQuestion {
  std::int64_t experts = 0;
  std::int64_t topk = 0;
  std::int64_t tokens = 0;  // of all ranks that share the experts
  std::int64_t texts = 0;   // equal parts of the tokens, which ranks have in turn; 0: one a rank
  const ExpertPlacement* placement = nullptr;  // null: contiguous
  WireSizes wire{};
  const std::vector<bool>* on_gpus = nullptr;  // [experts] those of ranks' GPUs; null: none
};

/// What ranks do for the experts of one layer in a step, expected.
struct LayerLoad {
  /// Of the rank with most to do: experts by the number of their rows, without those on GPUs.
  std::map<std::int64_t, double> busiest;
  /// The same of the GPU with most to do, and the tokens that chose some of them.
  std::map<std::int64_t, double> busiest_gpu;
  double gpu_tokens = 0;
  double max_over_mean = 1;  // of the ranks' rows

  // Of all ranks: rows to other ranks, once to each that has an expert of the token, and results
  // back, one a choice or, added, one a row; their bytes there and back, those between nodes among
  // them.
  double rows = 0;
  double results = 0;
  double dispatch_bytes = 0;
  double combine_bytes = 0;
  double far_bytes = 0;
  double node_near_bytes = 0;  // between ranks of the node that has most
  /// Of the node that sends or takes most of the rows, and of the one with most of the results: a
  /// link sends and takes at the same time, and results wait for rows.
  double node_far_bytes = 0;
  // Of a rank.
  double near_messages = 0;  // to ranks of its node
  double far_messages = 0;   // to other nodes
};

/// Takes tokens as StepChoices has them and looks at what they ask of the ranks, which own experts
/// as they are placed, and tokens as its texts say. Deterministic. `layer`: among those with
/// experts.
[[nodiscard]] LayerLoad draw_load(const ExpertQuestion& question, const CostRanks& ranks,
                                  const ExpertPopularity& popularity, std::int64_t layer);

/// The same of one sample of the tokens, rank by rank.
struct LayerMessages {
  struct Bytes {
    double there = 0;  // rows for experts
    double back = 0;   // their results
  };
  int nodes = 1;
  /// [ranks][nodes] To the ranks of each node: one message, in pieces; inside a node copies.
  std::vector<Bytes> bytes{};
  double near_messages = 0;  // of a rank, to ranks of its node

  [[nodiscard]] const Bytes& of(int rank, int node) const {
    return bytes[static_cast<std::size_t>(rank) * static_cast<std::size_t>(nodes) +
                 static_cast<std::size_t>(node)];
  }
};
[[nodiscard]] LayerMessages draw_messages(const ExpertQuestion& question, const CostRanks& ranks,
                                          const ExpertPopularity& popularity, std::int64_t layer);

}  // namespace moesaic
