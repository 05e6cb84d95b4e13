#include "src/parallel/expert_loads.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace moesaic {
namespace {

constexpr std::uint64_t kSeed = 6;
/// More tokens than these behave as these do, in proportion.
constexpr std::int64_t kMostTokens = 4096;
/// Few tokens are drawn again and again.
constexpr std::int64_t kMostDraws = 16;
/// Which rank has most to do: reading an expert's weights counts as much as so many rows do.
constexpr double kRowsOfReading = 16;

/// One draw of the tokens of a step.
class Draw {
 public:
  Draw(const ExpertQuestion& question, const CostRanks& ranks, const ExpertPlacement& placement)
      : ranks_(ranks),
        placement_(placement),
        tokens_(std::min(question.tokens, kMostTokens)),
        scale_(static_cast<double>(question.tokens) / static_cast<double>(tokens_)),
        rows_(static_cast<std::size_t>(question.experts)),
        nodes_(static_cast<std::size_t>(ranks.nodes())) {}

  void run(ExpertDraw& experts, const CounterRandom& random) {
    for (std::int64_t token = 0; token < tokens_; ++token) {
      const auto home = static_cast<int>(token * ranks_.sharers() / tokens_);
      add(home, experts.next(random.at(static_cast<std::uint64_t>(token))));
    }
  }

  /// Adds `share` of what was drawn.
  void add_to(LayerLoad& load, double share) const {
    add_busiest(load, share);
    const auto token = share / static_cast<double>(tokens_);
    for (const Node& node : nodes_) {
      load.rows += token * (node.inside_rows + node.leaving_rows);
      load.results += token * (node.inside_results + node.leaving_results);
      load.link_token_rows += token * node.leaving_rows;
      load.link_token_results += token * node.leaving_results;
    }
    const Node& most = *std::ranges::max_element(nodes_, {}, [](const Node& node) {
      return node.leaving_results + node.leaving_rows + node.inside_results + node.inside_rows;
    });
    load.node_rows += share * scale_ * most.inside_rows;
    load.node_results += share * scale_ * most.inside_results;
    load.link_rows += share * scale_ * most.leaving_rows;
    load.link_results += share * scale_ * most.leaving_results;
    add_messages(load, share);
  }

 private:
  struct Node {
    double inside_rows = 0;  // from one of its ranks to another
    double inside_results = 0;
    double leaving_rows = 0;
    double leaving_results = 0;
  };
  struct Pair {
    int from;
    int to;
    friend auto operator<=>(const Pair&, const Pair&) = default;
  };

  [[nodiscard]] int node_of(int rank) const { return rank / ranks_.ranks_per_node; }

  void add(int home, std::span<const ExpertId> experts) {
    owners_.clear();
    Node& home_node = nodes_[static_cast<std::size_t>(node_of(home))];
    for (const ExpertId expert : experts) {
      ++rows_[static_cast<std::size_t>(expert)];
      const int owner = placement_.rank_of(expert);
      if (owner == home) continue;
      Node& owner_node = nodes_[static_cast<std::size_t>(node_of(owner))];
      const bool is_inside = &home_node == &owner_node;
      ++(is_inside ? owner_node.inside_results : owner_node.leaving_results);
      if (std::ranges::find(owners_, owner) != owners_.end()) continue;
      ++(is_inside ? home_node.inside_rows : home_node.leaving_rows);
      pairs_.push_back({home, owner});
      owners_.push_back(owner);
    }
  }

  void add_busiest(LayerLoad& load, double share) const {
    int busiest = 0;
    double most_work = -1;
    double most_rows = 0;
    double sum = 0;
    for (int rank = 0; rank < placement_.num_ranks(); ++rank) {
      double rows = 0;
      double met = 0;
      for_each_expert(rank, [&](std::int64_t of_expert) {
        rows += static_cast<double>(of_expert) * scale_;
        met += of_expert > 0 ? 1 : 0;
      });
      sum += rows;
      most_rows = std::max(most_rows, rows);
      if (rows + kRowsOfReading * met <= most_work) continue;
      most_work = rows + kRowsOfReading * met;
      busiest = rank;
    }
    for_each_expert(busiest, [&](std::int64_t of_expert) {
      const auto rows = static_cast<std::int64_t>(static_cast<double>(of_expert) * scale_ + 0.5);
      if (rows > 0) load.busiest[rows] += share;
    });
    load.max_over_mean += share * (most_rows * placement_.num_ranks() / sum - 1);
  }

  template <typename Call>
  void for_each_expert(int rank, const Call& call) const {
    for (const ExpertId expert : placement_.experts_of(rank)) {
      call(rows_[static_cast<std::size_t>(expert)]);
    }
  }

  /// Rows to each peer that gets some, and its results.
  void add_messages(LayerLoad& load, double share) const {
    std::vector<Pair> pairs = pairs_;
    std::ranges::sort(pairs);
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    for (const Pair& pair : pairs) {
      const double messages = 2 * share / ranks_.sharers();
      (node_of(pair.from) == node_of(pair.to) ? load.node_messages : load.link_messages) +=
          messages;
    }
  }

  const CostRanks& ranks_;
  const ExpertPlacement& placement_;
  std::int64_t tokens_;
  double scale_;                    // tokens of the step for one drawn
  std::vector<std::int64_t> rows_;  // [experts]
  std::vector<Node> nodes_;         // of one copy of the experts
  std::vector<int> owners_;         // scratch: other ranks that a token goes to
  std::vector<Pair> pairs_;         // ranks that a row goes from and to
};

/// Counts go to all before rows can: in as many turns as doubling takes.
void add_counts(LayerLoad& load, const CostRanks& ranks) {
  const auto turns = std::ceil(std::log2(static_cast<double>(ranks.sharers())));
  (ranks.nodes() > 1 ? load.link_messages : load.node_messages) += turns;
}

}  // namespace

LayerLoad draw_load(const ExpertQuestion& question, const CostRanks& ranks,
                    const std::vector<double>& rates, std::int64_t layer) {
  const ExpertPlacement placement(question.experts, ranks.sharers());
  const std::int64_t draws = std::clamp<std::int64_t>(kMostTokens / question.tokens, 1, kMostDraws);
  ExpertDraw experts(rates, question.topk);
  const CounterRandom random = CounterRandom(kSeed).at(static_cast<std::uint64_t>(layer));
  LayerLoad load;
  for (std::int64_t i = 0; i < draws; ++i) {
    Draw draw(question, ranks, placement);
    draw.run(experts, random.at(static_cast<std::uint64_t>(i)));
    draw.add_to(load, 1 / static_cast<double>(draws));
  }
  add_counts(load, ranks);
  return load;
}

}  // namespace moesaic
