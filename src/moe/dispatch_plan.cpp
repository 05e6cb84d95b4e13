#include "src/moe/dispatch_plan.h"

#include <algorithm>
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

/// Throws Error{peer} if an expert is not one of the model's.
void check_experts(const ReceivedChoices& received, std::int64_t topk,
                   const ExpertPlacement& placement) {
  std::int64_t choice = 0;
  for (std::size_t peer = 0; peer < received.counts.size(); ++peer) {
    for (const std::int64_t end = choice + received.counts[peer] * topk; choice < end; ++choice) {
      const auto expert = static_cast<std::int32_t>(received.experts[index(choice)]);
      require(expert >= 0 && expert < placement.num_experts(), ErrorKind::peer,
              "rank {} sent expert id {}, but the model has {} experts", peer, expert,
              placement.num_experts());
    }
  }
}

/// Walks the choices of this rank's experts: own tokens and received rows, in rank order.
class LocalChoices {
 public:
  LocalChoices(const Routing& own, const ReceivedChoices& received,
               const ExpertPlacement& placement, int own_rank)
      : own_(own), received_(received), placement_(placement), own_rank_(own_rank) {}

  [[nodiscard]] std::span<const ExpertId> experts_of(std::int64_t source) const {
    if (source < own_.num_tokens) return own_.experts_of(source);
    const std::int64_t row = source - own_.num_tokens;
    return received_.experts.subspan(index(row * own_.topk), index(own_.topk));
  }

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
    const std::span<const ExpertId> experts = experts_of(own_.num_tokens + row);
    for (std::int64_t word = 0; word < own_.topk; ++word) {
      visit(experts[index(word)], {peer, own_.num_tokens + row, word, -1}, call);
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

/// Lists parts by rank; those of a rank stay in order.
template <typename Parts>
void list_by_rank(const Parts& parts, std::vector<std::int32_t>& outputs,
                  std::span<std::int64_t> counts) {
  outputs.clear();
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const std::size_t before = outputs.size();
    for (const auto& part : parts) {
      if (part.rank == static_cast<int>(rank)) outputs.push_back(part.output);
    }
    counts[rank] = static_cast<std::int64_t>(outputs.size() - before);
  }
}

}  // namespace

void DispatchPlanner::plan_sends(const Routing& routing, SendPlan& plan) {
  const std::size_t ranks = index(placement_->num_ranks());
  plan.num_tokens = routing.num_tokens;
  plan.send_counts.assign(ranks, 0);
  plan.return_counts.assign(ranks, 0);
  plan.return_rows.assign(routing.experts.size(), -1);
  struct Remote {
    TokenChoices token;
    std::int64_t choice;
    int rank;
    bool new_row;     // its token's row goes there for it
    bool has_result;  // one comes back for it
  };

  const auto for_each_remote = [&](auto&& call) {
    last_token_.assign(ranks, -1);
    for (std::int64_t number = 0; number < routing.num_tokens; ++number) {
      const TokenChoices token{own_rank_, routing.experts_of(number)};
      for (std::int64_t k = 0; k < routing.topk; ++k) {
        const int rank = placement_->rank_of(token.experts[index(k)]);
        if (rank == own_rank_) continue;
        const bool new_row = std::exchange(last_token_[index(rank)], number) != number;
        const bool has_result =
            combine_ == Combine::ordered || (new_row && rank_of_sum(token, rank) == rank);
        call(Remote{token, number * routing.topk + k, rank, new_row, has_result});
      }
    }
  };
  for_each_remote([&](const Remote& remote) {
    plan.send_counts[index(remote.rank)] += remote.new_row ? 1 : 0;
    plan.return_counts[index(remote.rank)] += remote.has_result ? 1 : 0;
  });

  next_.resize(ranks);
  returns_.resize(ranks);
  std::exclusive_scan(plan.send_counts.begin(), plan.send_counts.end(), next_.begin(),
                      std::int64_t{0});
  std::exclusive_scan(plan.return_counts.begin(), plan.return_counts.end(), returns_.begin(),
                      std::int64_t{0});
  plan.send_tokens.resize(index(next_.back() + plan.send_counts.back()));
  for_each_remote([&](const Remote& remote) {
    const std::size_t rank = index(remote.rank);
    const std::int64_t token = remote.choice / routing.topk;
    if (remote.new_row) plan.send_tokens[index(next_[rank]++)] = narrow<std::int32_t>(token);
    if (!remote.has_result) return;
    plan.return_rows[place_of_sum(remote.token, remote.choice)] =
        narrow<std::int32_t>(returns_[rank]++);
  });
}

void DispatchPlanner::plan_execution(const Routing& own, const ReceivedChoices& received,
                                     ExecutePlan& plan) {
  using Origin = LocalChoices::Origin;
  check_experts(received, own.topk, *placement_);
  const LocalChoices choices(own, received, *placement_, own_rank_);
  plan.slot_begin.assign(index(placement_->num_local_experts(own_rank_) + 1), 0);
  choices.for_each([&](const Origin&, Slot slot) { ++plan.slot_begin[index(slot) + 1]; });
  std::partial_sum(plan.slot_begin.begin(), plan.slot_begin.end(), plan.slot_begin.begin());

  next_.assign(plan.slot_begin.begin(), plan.slot_begin.end() - 1);
  plan.output_sources.resize(index(plan.slot_begin.back()));
  plan.output_words.resize(plan.output_sources.size());
  plan.own_outputs.assign(own.experts.size(), -1);
  plan.return_outputs.clear();
  plan.return_counts.assign(received.counts.size(), 0);
  plan.results_saved = 0;
  const bool adds_parts = combine_ == Combine::fast;
  start_parts(adds_parts, plan);
  leaving_.clear();
  coming_.clear();
  // Peers, rows and choices are walked in the order in which results return.
  choices.for_each([&, last = std::int64_t{-1}](const Origin& origin, Slot slot) mutable {
    const auto output = narrow<std::int32_t>(next_[index(slot)]++);
    plan.output_sources[index(output)] = narrow<std::int32_t>(origin.source);
    plan.output_words[index(output)] = static_cast<std::int32_t>(origin.word);
    const TokenChoices token{origin.peer, choices.experts_of(origin.source)};
    const bool is_first = std::exchange(last, origin.source) != origin.source;
    bool has_result = is_first || !adds_parts;
    if (adds_parts) add_to_part(output, is_first, plan);
    if (is_first && nodes_ != nullptr) {
      const int adding = rank_of_sum(token, own_rank_);
      add_node_part(token, adding, output);
      has_result = adding == own_rank_;
    }
    if (origin.choice >= 0) {
      if (has_result) plan.own_outputs[place_of_sum(token, origin.choice)] = output;
    } else if (has_result) {
      plan.return_outputs.push_back(output);
      ++plan.return_counts[index(origin.peer)];
    } else {
      ++plan.results_saved;
    }
  });
  write_node_parts(plan.node_parts);
}

int DispatchPlanner::rank_of_sum(const TokenChoices& token, int rank) const {
  if (nodes_ == nullptr) return rank;
  return adding_rank(token, *placement_, *nodes_, nodes_->place_of(rank).node);
}

/// For which choice of its token the result stands that comes for `choice`: itself, or the first
/// one of its node.
std::size_t DispatchPlanner::place_of_sum(const TokenChoices& token, std::int64_t choice) const {
  if (nodes_ == nullptr) return index(choice);
  const std::size_t k = index(choice) % token.experts.size();
  const auto node = [&](ExpertId expert) {
    return nodes_->place_of(placement_->rank_of(expert)).node;
  };
  const auto first = std::ranges::find(token.experts, node(token.experts[k]), node);
  return index(choice) - k + static_cast<std::size_t>(first - token.experts.begin());
}

/// What this rank has of a token, `output`, is added by rank `adding`, to its own part.
void DispatchPlanner::add_node_part(const TokenChoices& token, int adding, std::int32_t output) {
  if (adding != own_rank_) {
    leaving_.push_back({nodes_->place_of(adding).rank, output});
    return;
  }
  for (const int rank : nodes_->ranks_of(nodes_->place_of(own_rank_).node)) {
    const bool has_part = std::ranges::any_of(
        token.experts, [&](ExpertId expert) { return placement_->rank_of(expert) == rank; });
    if (rank != own_rank_ && has_part) coming_.push_back({nodes_->place_of(rank).rank, output});
  }
}

void DispatchPlanner::write_node_parts(ExecutePlan::NodeParts& plan) const {
  const std::size_t ranks =
      nodes_ == nullptr ? 0 : nodes_->ranks_of(nodes_->place_of(own_rank_).node).size();
  plan.send_counts.resize(ranks);
  plan.recv_counts.resize(ranks);
  list_by_rank(leaving_, plan.send_outputs, plan.send_counts);
  list_by_rank(coming_, plan.recv_outputs, plan.recv_counts);
}

}  // namespace moesaic
