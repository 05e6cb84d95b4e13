#include "src/moe/dispatch_plan.h"

#include <numeric>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

std::size_t index(Slot slot) {
  return static_cast<std::size_t>(slot);
}

/// Walks the choices of this rank's experts: own tokens and received rows, in rank order.
class LocalChoices {
 public:
  LocalChoices(const Routing& own, const ReceivedChoices& received,
               const ExpertPlacement& placement, int own_rank)
      : own_(own), received_(received), placement_(placement), own_rank_(own_rank) {}

  /// Where a choice comes from.
  struct Origin {
    int peer;
    std::int64_t source;
    std::int64_t word;    // which of its source's choices it is
    std::int64_t choice;  // of an own token; -1 for a received row
  };

  /// call(origin, slot)
  template <typename Call>
  void for_each(Call&& call) const {
    std::int64_t row = 0;
    for (int peer = 0; peer < static_cast<int>(received_.counts.size()); ++peer) {
      if (peer == own_rank_) for_each_own(call);
      for (const std::int64_t end = row + received_.counts[index(peer)]; row < end; ++row) {
        for_each_of_row(peer, row, call);
      }
    }
  }

 private:
  template <typename Call>
  void for_each_own(Call& call) const {
    std::int64_t choice = 0;
    for (std::int64_t token = 0; token < own_.num_tokens; ++token) {
      for (std::int64_t word = 0; word < own_.topk; ++word, ++choice) {
        visit(own_.experts[index(choice)], {own_rank_, token, word, choice}, call);
      }
    }
  }

  template <typename Call>
  void for_each_of_row(int peer, std::int64_t row, Call& call) const {
    for (std::int64_t word = 0; word < own_.topk; ++word) {
      const std::int32_t expert = received_.experts[index(row * own_.topk + word)];
      require(expert >= 0 && expert < placement_.num_experts(), ErrorKind::peer,
              "rank {} sent expert id {}, but the model has {} experts", peer, expert,
              placement_.num_experts());
      visit(ExpertId{expert}, {peer, own_.num_tokens + row, word, -1}, call);
    }
  }

  template <typename Call>
  void visit(ExpertId expert, const Origin& origin, Call& call) const {
    if (placement_.rank_of(expert) == own_rank_) call(origin, placement_.slot_of(expert));
  }

  const Routing& own_;
  const ReceivedChoices& received_;
  const ExpertPlacement& placement_;
  int own_rank_;
};

void start_parts(bool wanted, ExecutePlan& plan) {
  plan.part_outputs.clear();
  plan.part_begin.assign(wanted ? 1 : 0, 0);
  plan.output_parts.resize(wanted ? plan.output_sources.size() : 0);
}

/// Outputs come part by part.
void add_to_part(std::int32_t output, bool is_first, ExecutePlan& plan) {
  if (is_first) plan.part_begin.push_back(plan.part_begin.back());
  ++plan.part_begin.back();
  plan.part_outputs.push_back(output);
  plan.output_parts[index(output)] = narrow<std::int32_t>(std::ssize(plan.part_begin) - 2);
}

/// Which choices have a result that goes home: all, or the first of each row that a rank gets.
class ResultChoices {
 public:
  explicit ResultChoices(Combine combine) : all_(combine == Combine::ordered) {}

  /// Of choices in the order of their sources.
  [[nodiscard]] bool has(std::int64_t source) {
    return std::exchange(last_, source) != source || all_;
  }

 private:
  bool all_;
  std::int64_t last_ = -1;
};

}  // namespace

void DispatchPlanner::plan_sends(const Routing& routing, SendPlan& plan) {
  const std::size_t ranks = index(placement_->num_ranks());
  plan.num_tokens = routing.num_tokens;
  plan.send_counts.assign(ranks, 0);
  plan.return_counts.assign(ranks, 0);
  plan.return_rows.assign(routing.experts.size(), -1);
  const bool returns_all = combine_ == Combine::ordered;

  const auto for_each_remote = [&](auto&& call) {
    last_token_.assign(ranks, -1);
    for (std::int64_t token = 0; token < routing.num_tokens; ++token) {
      for (std::int64_t k = 0; k < routing.topk; ++k) {
        const std::int64_t choice = token * routing.topk + k;
        const int rank = placement_->rank_of(routing.experts[index(choice)]);
        if (rank == own_rank_) continue;
        const bool new_row = std::exchange(last_token_[index(rank)], token) != token;
        call(token, choice, rank, new_row);
      }
    }
  };
  for_each_remote([&](std::int64_t, std::int64_t, int rank, bool new_row) {
    plan.send_counts[index(rank)] += new_row ? 1 : 0;
    plan.return_counts[index(rank)] += new_row || returns_all ? 1 : 0;
  });

  next_.resize(ranks);
  returns_.resize(ranks);
  std::exclusive_scan(plan.send_counts.begin(), plan.send_counts.end(), next_.begin(),
                      std::int64_t{0});
  std::exclusive_scan(plan.return_counts.begin(), plan.return_counts.end(), returns_.begin(),
                      std::int64_t{0});
  plan.send_tokens.resize(index(next_.back() + plan.send_counts.back()));
  for_each_remote([&](std::int64_t token, std::int64_t choice, int rank, bool new_row) {
    if (new_row) plan.send_tokens[index(next_[index(rank)]++)] = narrow<std::int32_t>(token);
    if (!new_row && !returns_all) return;
    plan.return_rows[index(choice)] = narrow<std::int32_t>(returns_[index(rank)]++);
  });
}

void DispatchPlanner::plan_execution(const Routing& own, const ReceivedChoices& received,
                                     ExecutePlan& plan) {
  using Origin = LocalChoices::Origin;
  const LocalChoices choices(own, received, *placement_, own_rank_);
  plan.slot_begin.assign(index(placement_->num_local_experts(own_rank_) + 1), 0);
  plan.return_counts.assign(received.counts.size(), 0);
  choices.for_each([&, results = ResultChoices(combine_)](const Origin& origin, Slot slot) mutable {
    ++plan.slot_begin[index(slot) + 1];
    const bool has_result = results.has(origin.source);
    if (origin.choice < 0 && has_result) ++plan.return_counts[index(origin.peer)];
  });
  std::partial_sum(plan.slot_begin.begin(), plan.slot_begin.end(), plan.slot_begin.begin());

  next_.assign(plan.slot_begin.begin(), plan.slot_begin.end() - 1);
  plan.output_sources.resize(index(plan.slot_begin.back()));
  plan.output_words.resize(plan.output_sources.size());
  plan.own_outputs.assign(own.experts.size(), -1);
  plan.return_outputs.clear();
  plan.results_saved = 0;
  start_parts(combine_ == Combine::fast, plan);
  choices.for_each([&, results = ResultChoices(combine_)](const Origin& origin, Slot slot) mutable {
    const auto output = narrow<std::int32_t>(next_[index(slot)]++);
    plan.output_sources[index(output)] = narrow<std::int32_t>(origin.source);
    plan.output_words[index(output)] = static_cast<std::int32_t>(origin.word);
    const bool has_result = results.has(origin.source);
    if (combine_ == Combine::fast) add_to_part(output, has_result, plan);
    if (!has_result) {
      plan.results_saved += origin.choice < 0 ? 1 : 0;
    } else if (origin.choice >= 0) {
      plan.own_outputs[index(origin.choice)] = output;
    } else {
      plan.return_outputs.push_back(output);  // peers, rows and choices are walked in return order
    }
  });
}

}  // namespace moesaic
