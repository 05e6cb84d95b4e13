#include "src/parallel/expert_loads.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "src/parallel/expert_nodes.h"
#include "src/parallel/step_choices.h"

namespace moesaic {
namespace {

/// Which rank has most to do: reading an expert's weights counts as much as so many rows do.
constexpr double kRowsOfReading = 16;

/// One sample of the tokens of a step.
class Draw {
 public:
  Draw(const ExpertQuestion& question, const CostRanks& ranks, const ExpertPlacement& placement,
       double scale)
      : ranks_(ranks),
        placement_(placement),
        scale_(scale),
        wire_(question.wire),
        num_nodes_(ranks.sharer_nodes()),
        nodes_(map_nodes(ranks)),
        rows_(static_cast<std::size_t>(question.experts)),
        on_gpus_(question.on_gpus),
        gpu_tokens_(static_cast<std::size_t>(ranks.sharers())),
        near_(static_cast<std::size_t>(ranks.sharers())),
        far_(near_.size() * static_cast<std::size_t>(num_nodes_)),
        last_result_(far_.size(), ExpertId{0}) {}

  void run(StepChoices& choices, std::int64_t sample) {
    for (std::int64_t token = 0; token < choices.tokens(); ++token) {
      const auto home = static_cast<int>(choices.text_of(token) % ranks_.sharers());
      add(home, choices.experts_of(sample, token));
    }
  }

  /// Adds `share` of what was drawn.
  void add_to(LayerLoad& load, double share) const {
    add_rows(load.busiest, share, busiest_rank(false), false);
    if (on_gpus_ != nullptr) {
      const int busiest = busiest_rank(true);
      add_rows(load.busiest_gpu, share, busiest, true);
      load.gpu_tokens += share * scale_ * gpu_tokens_[static_cast<std::size_t>(busiest)];
    }
    load.max_over_mean += share * (max_over_mean() - 1);
    double most_near = 0;
    FarSums sums(static_cast<std::size_t>(num_nodes_));
    for (int node = 0; node < num_nodes_; ++node) {
      double near = 0;
      for (int rank = first_rank(node); rank < first_rank(node + 1); ++rank) {
        near += add_near(load, share, rank);
        add_far(load, share, rank, sums);
      }
      most_near = std::max(most_near, near);
    }
    load.node_near_bytes += share * most_near;
    load.node_far_bytes += share * sums.busiest();
  }

  /// What was drawn, as messages.
  [[nodiscard]] LayerMessages messages() const {
    LayerMessages result{.nodes = num_nodes_};
    for (int rank = 0; rank < ranks_.sharers(); ++rank) {
      for (int node = 0; node < num_nodes_; ++node) {
        const bool is_near = node == node_of(rank);
        result.bytes.push_back(is_near ? near_bytes(rank) : far_messages(rank, node).bytes());
      }
    }
    return result;
  }

 private:
  /// Bytes between nodes: what each sends and takes.
  struct FarSums {
    explicit FarSums(std::size_t nodes)
        : there_out(nodes), there_in(nodes), back_out(nodes), back_in(nodes) {}

    [[nodiscard]] double busiest() const {
      return std::max(std::ranges::max(there_out), std::ranges::max(there_in)) +
             std::max(std::ranges::max(back_out), std::ranges::max(back_in));
    }

    std::vector<double> there_out, there_in, back_out, back_in;  // [nodes]
  };
  /// What a rank sends to ranks of its own node.
  struct Near {
    double rows = 0;
    double results = 0;
    double parts = 0;  // of results, to the rank that adds those of the node
  };
  /// What a rank sends to another node.
  struct Far {
    FarRows rows;
    FarRows results;
  };
  struct FarMessages {
    FarLayout there;
    FarLayout back;

    [[nodiscard]] LayerMessages::Bytes bytes() const {
      return {static_cast<double>(there.end), static_cast<double>(back.end)};
    }
    [[nodiscard]] double count() const {
      return static_cast<double>(there.num_messages() + back.num_messages());
    }
  };

  [[nodiscard]] static NodeMap map_nodes(const CostRanks& ranks) {
    std::vector<int> nodes;
    for (int rank = 0; rank < ranks.sharers(); ++rank) nodes.push_back(rank / ranks.near_ranks());
    return NodeMap(nodes);
  }
  [[nodiscard]] int node_of(int rank) const { return rank / ranks_.near_ranks(); }
  [[nodiscard]] int first_rank(int node) const {
    return std::min(node * ranks_.near_ranks(), ranks_.sharers());
  }
  [[nodiscard]] Near& near(int rank) { return near_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t far_index(int rank, int node) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(num_nodes_) +
           static_cast<std::size_t>(node);
  }

  [[nodiscard]] bool is_on_gpu(ExpertId expert) const {
    return on_gpus_ != nullptr && (*on_gpus_)[static_cast<std::size_t>(expert)];
  }

  /// A row goes up once to each GPU that has one of its experts.
  void add_gpu_tokens(std::span<const ExpertId> experts) {
    owners_.clear();
    for (const ExpertId expert : experts) {
      const int owner = placement_.rank_of(expert);
      if (!is_on_gpu(expert) || std::ranges::find(owners_, owner) != owners_.end()) continue;
      owners_.push_back(owner);
      gpu_tokens_[static_cast<std::size_t>(owner)] += 1;
    }
  }

  void add(int home, std::span<const ExpertId> experts) {
    if (on_gpus_ != nullptr) add_gpu_tokens(experts);
    owners_.clear();
    met_.clear();
    for (const ExpertId expert : experts) {
      ++rows_[static_cast<std::size_t>(expert)];
      const int owner = placement_.rank_of(expert);
      if (owner == home) continue;
      const bool is_first = std::ranges::find(owners_, owner) == owners_.end();
      if (is_first && wire_.adds_parts() && num_nodes_ > 1) {
        add_part(expert, home, experts);
      } else if (is_first || !wire_.adds_parts()) {
        add_result(expert, home);
      }
      if (!is_first) continue;
      owners_.push_back(owner);
      add_row(home, owner);
    }
  }

  /// To the rank that adds those of its node, which sends one result for all. `expert`: the first
  /// of `experts` that its rank has.
  void add_part(ExpertId expert, int home, std::span<const ExpertId> experts) {
    const int owner = placement_.rank_of(expert);
    const auto node = static_cast<std::size_t>(node_of(owner));
    if (adding_rank({home, experts}, placement_, nodes_, node) == owner)
      return add_result(expert, home);
    near(owner).parts += 1;
  }

  void add_result(ExpertId expert, int home) {
    const int owner = placement_.rank_of(expert);
    if (node_of(owner) == node_of(home)) {
      near(owner).results += 1;
      return;
    }
    const std::size_t at = far_index(owner, node_of(home));
    FarRows& results = far_[at].results;
    results.rows += 1;
    results.choices += 1;
    // They lie by expert and are sent by token.
    results.is_sorted = results.is_sorted && expert >= last_result_[at];
    last_result_[at] = expert;
  }

  void add_row(int home, int owner) {
    if (node_of(owner) == node_of(home)) {
      near(home).rows += 1;
      return;
    }
    FarRows& rows = far_[far_index(home, node_of(owner))].rows;
    rows.choices += 1;
    if (std::ranges::find(met_, node_of(owner)) != met_.end()) return;
    met_.push_back(node_of(owner));
    rows.rows += 1;
  }

  /// Returns the bytes that `rank` copies to ranks of its node.
  double add_near(LayerLoad& load, double share, int rank) const {
    const Near& near = near_[static_cast<std::size_t>(rank)];
    const auto [there, back] = near_bytes(rank);
    load.rows += share * near.rows * scale_;
    load.results += share * near.results * scale_;
    load.dispatch_bytes += share * there;
    load.combine_bytes += share * back;
    return there + back;
  }

  [[nodiscard]] LayerMessages::Bytes near_bytes(int rank) const {
    const Near& near = near_[static_cast<std::size_t>(rank)];
    return {near.rows * scale_ * static_cast<double>(wire_.row_bytes),
            near.results * scale_ * static_cast<double>(wire_.result_bytes) +
                near.parts * scale_ * static_cast<double>(wire_.part_bytes)};
  }

  /// Of `rank` to another node.
  [[nodiscard]] FarMessages far_messages(int rank, int node) const {
    const Far& far = far_[far_index(rank, node)];
    const int there_ranks = first_rank(node + 1) - first_rank(node);
    return {layout_of(scaled(far.rows), there_ranks, wire_.row_bytes, wire_.tag_bytes, false),
            layout_of(scaled(far.results), there_ranks, wire_.result_bytes, 0,
                      wire_.results_come_later)};
  }

  /// What `rank` sends to other nodes, of all and of each node.
  void add_far(LayerLoad& load, double share, int rank, FarSums& sums) const {
    const auto own = static_cast<std::size_t>(node_of(rank));
    for (int node = 0; node < num_nodes_; ++node) {
      if (node == node_of(rank)) continue;
      const Far& far = far_[far_index(rank, node)];
      const FarMessages messages = far_messages(rank, node);
      const auto [there, back] = messages.bytes();
      load.rows += share * scale_ * far.rows.choices;
      load.results += share * scale_ * far.results.choices;
      load.dispatch_bytes += share * there;
      load.combine_bytes += share * back;
      load.far_bytes += share * (there + back);
      load.far_messages += share * messages.count() / ranks_.sharers();
      const auto other = static_cast<std::size_t>(node);
      sums.there_out[own] += there;
      sums.there_in[other] += there;
      sums.back_out[own] += back;
      sums.back_in[other] += back;
    }
  }

  [[nodiscard]] FarRows scaled(const FarRows& rows) const {
    return {rows.rows * scale_, rows.choices * scale_, rows.is_sorted};
  }

  /// Of experts on GPUs, or of the others.
  [[nodiscard]] int busiest_rank(bool on_gpus) const {
    int busiest = 0;
    double most_work = -1;
    for (int rank = 0; rank < placement_.num_ranks(); ++rank) {
      double work = 0;
      for (const ExpertId expert : placement_.experts_of(rank)) {
        const std::int64_t rows = rows_of(expert);
        if (rows == 0 || is_on_gpu(expert) != on_gpus) continue;
        work += static_cast<double>(rows) * scale_ + kRowsOfReading;
      }
      if (work <= most_work) continue;
      most_work = work;
      busiest = rank;
    }
    return busiest;
  }

  void add_rows(std::map<std::int64_t, double>& experts, double share, int rank,
                bool on_gpus) const {
    for (const ExpertId expert : placement_.experts_of(rank)) {
      if (is_on_gpu(expert) != on_gpus) continue;
      const auto rows =
          static_cast<std::int64_t>(static_cast<double>(rows_of(expert)) * scale_ + 0.5);
      if (rows > 0) experts[rows] += share;
    }
  }

  [[nodiscard]] double max_over_mean() const {
    double most = 0;
    double sum = 0;
    for (int rank = 0; rank < placement_.num_ranks(); ++rank) {
      double rows = 0;
      for (const ExpertId expert : placement_.experts_of(rank)) {
        rows += static_cast<double>(rows_of(expert)) * scale_;
      }
      sum += rows;
      most = std::max(most, rows);
    }
    return most * placement_.num_ranks() / sum;
  }

  [[nodiscard]] std::int64_t rows_of(ExpertId expert) const {
    return rows_[static_cast<std::size_t>(expert)];
  }

  const CostRanks& ranks_;
  const ExpertPlacement& placement_;
  double scale_;  // tokens of the step for one of the sample
  WireSizes wire_;
  int num_nodes_;  // that have ranks of one copy of the experts
  NodeMap nodes_;
  std::vector<std::int64_t> rows_;  // [experts]
  const std::vector<bool>* on_gpus_;
  std::vector<double> gpu_tokens_;     // [ranks] that chose experts of its GPU
  std::vector<Near> near_;             // [ranks]
  std::vector<Far> far_;               // [ranks][nodes]
  std::vector<ExpertId> last_result_;  // [ranks][nodes] of which the last of far_'s results is
  std::vector<int> owners_;            // scratch: other ranks that a token goes to
  std::vector<int> met_;               // scratch: other nodes that it goes to
};

/// What is drawn of a layer, again and again.
struct Sampling {
  Sampling(const ExpertQuestion& asked, const CostRanks& by, const ExpertPopularity& popularity,
           std::int64_t layer)
      : question(asked),
        ranks(by),
        contiguous(asked.experts, by.sharers()),
        choices(asked, by, popularity, layer) {}

  [[nodiscard]] Draw draw(std::int64_t sample) {
    const double scale =
        static_cast<double>(question.tokens) / static_cast<double>(choices.tokens());
    Draw result(question, ranks, question.placement ? *question.placement : contiguous, scale);
    result.run(choices, sample);
    return result;
  }

  const ExpertQuestion& question;
  const CostRanks& ranks;
  ExpertPlacement contiguous;
  StepChoices choices;
};

/// Inside a node each rank looks at the notes of all others, there and back.
double near_messages(const CostRanks& ranks) {
  return 2.0 * (std::min(ranks.sharers(), ranks.near_ranks()) - 1);
}

}  // namespace

FarLayout layout_of(const FarRows& rows, int node_ranks, std::int64_t row_bytes,
                    std::int64_t tag_bytes, bool come_later) {
  const bool has_places = node_ranks > 1 || !rows.is_sorted;
  FarHeader header{.row_bytes = row_bytes - tag_bytes,
                   .tag_bytes = tag_bytes,
                   .num_rows = std::llround(rows.rows),
                   .num_ranks = node_ranks,
                   .has_places = static_cast<std::int16_t>(has_places ? 1 : 0),
                   .num_places = std::llround(rows.choices)};
  cut_far_message(header, come_later);
  return far_layout(header);
}

LayerLoad draw_load(const ExpertQuestion& question, const CostRanks& ranks,
                    const ExpertPopularity& popularity, std::int64_t layer) {
  Sampling sampling(question, ranks, popularity, layer);
  LayerLoad load;
  load.near_messages = near_messages(ranks);
  const std::int64_t samples = sampling.choices.samples();
  for (std::int64_t i = 0; i < samples; ++i) {
    sampling.draw(i).add_to(load, 1 / static_cast<double>(samples));
  }
  return load;
}

LayerMessages draw_messages(const ExpertQuestion& question, const CostRanks& ranks,
                            const ExpertPopularity& popularity, std::int64_t layer) {
  LayerMessages messages = Sampling(question, ranks, popularity, layer).draw(0).messages();
  messages.near_messages = near_messages(ranks);
  return messages;
}

}  // namespace moesaic
