#include "src/moe/dispatch_plan.h"

#include <numeric>

#include "base/error.h"

namespace moesaic {
namespace {

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// Walks the choices of this rank's experts: own tokens and received rows, in rank order.
class LocalChoices {
 public:
  LocalChoices(const Routing& own, const ReceivedChoices& received,
               const ExpertPlacement& placement, int own_rank)
      : own_(own),
        received_(received),
        begin_(placement.experts_start_idx(own_rank)),
        end_(begin_ + placement.num_local_experts(own_rank)),
        num_experts_(placement.num_experts()),
        own_rank_(own_rank) {}

  /// call(peer, source, slot, choice): choice is that of an own token, -1 for a received row.
  template <typename Call>
  void for_each(Call&& call) const {
    std::int64_t row = 0;
    for (int peer = 0; peer < static_cast<int>(received_.counts.size()); ++peer) {
      if (peer == own_rank_) {
        std::int64_t choice = 0;
        for (std::int64_t token = 0; token < own_.num_tokens; ++token) {
          for (const ExpertId expert : own_.experts_of(token)) {
            visit(peer, token, static_cast<std::int64_t>(expert), choice++, call);
          }
        }
        continue;
      }
      const std::int64_t row_end = row + received_.counts[index(peer)];
      for (; row < row_end; ++row) {
        for (std::int64_t k = 0; k < own_.topk; ++k) {
          const std::int64_t expert = received_.experts[index(row * own_.topk + k)];
          require(expert >= 0 && expert < num_experts_, ErrorKind::peer,
                  "rank {} sent expert id {}, but the model has {} experts", peer, expert,
                  num_experts_);
          visit(peer, own_.num_tokens + row, expert, -1, call);
        }
      }
    }
  }

 private:
  template <typename Call>
  void visit(int peer, std::int64_t source, std::int64_t expert, std::int64_t choice,
             Call&& call) const {
    if (expert >= begin_ && expert < end_) call(peer, source, expert - begin_, choice);
  }

  const Routing& own_;
  const ReceivedChoices& received_;
  std::int64_t begin_;
  std::int64_t end_;
  std::int64_t num_experts_;
  int own_rank_;
};

}  // namespace

SendPlan make_send_plan(const Routing& routing, const ExpertPlacement& placement, int own_rank) {
  const int ranks = placement.num_ranks();
  SendPlan plan;
  plan.send_counts.assign(index(ranks), 0);
  plan.return_counts.assign(index(ranks), 0);
  plan.return_rows.assign(routing.experts.size(), -1);

  // A token's choices ascend, and so do their ranks: a new rank means a new row.
  const auto for_each_remote = [&](auto&& call) {
    for (std::int64_t token = 0; token < routing.num_tokens; ++token) {
      int last_rank = -1;
      for (std::int64_t k = 0; k < routing.topk; ++k) {
        const std::int64_t choice = token * routing.topk + k;
        const int rank = placement.rank_of(routing.experts[index(choice)]);
        if (rank != own_rank) call(token, choice, rank, rank != last_rank);
        last_rank = rank;
      }
    }
  };
  for_each_remote([&](std::int64_t, std::int64_t, int rank, bool new_row) {
    plan.send_counts[index(rank)] += new_row ? 1 : 0;
    ++plan.return_counts[index(rank)];
  });

  std::vector<std::int64_t> next_row(index(ranks));
  std::vector<std::int64_t> next_return(index(ranks));
  std::exclusive_scan(plan.send_counts.begin(), plan.send_counts.end(), next_row.begin(),
                      std::int64_t{0});
  std::exclusive_scan(plan.return_counts.begin(), plan.return_counts.end(), next_return.begin(),
                      std::int64_t{0});
  plan.send_tokens.resize(
      index(std::accumulate(plan.send_counts.begin(), plan.send_counts.end(), std::int64_t{0})));
  for_each_remote([&](std::int64_t token, std::int64_t choice, int rank, bool new_row) {
    if (new_row) plan.send_tokens[index(next_row[index(rank)]++)] = narrow<std::int32_t>(token);
    plan.return_rows[index(choice)] = narrow<std::int32_t>(next_return[index(rank)]++);
  });
  return plan;
}

ExecutePlan make_execute_plan(const Routing& own, const ReceivedChoices& received,
                              const ExpertPlacement& placement, int own_rank) {
  const LocalChoices choices(own, received, placement, own_rank);
  const std::int64_t slots = placement.num_local_experts(own_rank);
  ExecutePlan plan;
  plan.slot_begin.assign(index(slots + 1), 0);
  plan.return_counts.assign(received.counts.size(), 0);
  choices.for_each([&](int peer, std::int64_t, std::int64_t slot, std::int64_t choice) {
    ++plan.slot_begin[index(slot + 1)];
    if (choice < 0) ++plan.return_counts[index(peer)];
  });
  std::partial_sum(plan.slot_begin.begin(), plan.slot_begin.end(), plan.slot_begin.begin());

  std::vector<std::int64_t> next_output(plan.slot_begin.begin(), plan.slot_begin.end() - 1);
  plan.output_sources.resize(index(plan.slot_begin.back()));
  plan.own_outputs.assign(own.experts.size(), -1);
  choices.for_each([&](int, std::int64_t source, std::int64_t slot, std::int64_t choice) {
    const auto output = narrow<std::int32_t>(next_output[index(slot)]++);
    plan.output_sources[index(output)] = narrow<std::int32_t>(source);
    if (choice >= 0) {
      plan.own_outputs[index(choice)] = output;
    } else {
      plan.return_outputs.push_back(output);  // peers, rows and choices are walked in return order
    }
  });
  return plan;
}

}  // namespace moesaic
