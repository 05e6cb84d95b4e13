#include "src/moe/dispatch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "src/moe/part_queue.h"

namespace moesaic {
namespace {

Routing routing_of(std::int64_t topk, std::vector<int> experts) {
  Routing routing{.num_tokens = static_cast<std::int64_t>(experts.size()) / topk,
                  .topk = topk,
                  .experts = {},
                  .weights = std::vector<float>(experts.size(), 1.0F)};
  for (const int expert : experts) routing.experts.push_back(ExpertId{expert});
  return routing;
}

SendPlan make_send_plan(const Routing& routing, const ExpertPlacement& placement, int own_rank) {
  SendPlan plan;
  DispatchPlanner(placement, own_rank).plan_sends(routing, plan);
  return plan;
}

ExecutePlan make_execute_plan(const Routing& own, const ReceivedChoices& received,
                              const ExpertPlacement& placement, int own_rank) {
  ExecutePlan plan;
  DispatchPlanner(placement, own_rank).plan_execution(own, received, plan);
  return plan;
}

TEST(SendPlan, a_token_travels_once_to_each_rank) {
  // Experts 0 1 | 2 3 | 4 5 on three ranks; this is rank 0.
  const ExpertPlacement placement(6, 3);
  const SendPlan plan =
      make_send_plan(routing_of(3, {0, 2, 3, /**/ 1, 4, 5, /**/ 2, 3, 4}), placement, 0);
  EXPECT_EQ(plan.send_counts, (std::vector<std::int64_t>{0, 2, 2}));
  EXPECT_EQ(plan.send_tokens, (std::vector<std::int32_t>{0, 2, 1, 2}));
  EXPECT_EQ(plan.return_counts, (std::vector<std::int64_t>{0, 4, 3}));
  EXPECT_EQ(plan.return_rows, (std::vector<std::int32_t>{-1, 0, 1, -1, 4, 5, 2, 3, 6}));
}

TEST(SendPlan, a_token_travels_once_wherever_its_experts_are) {
  const ExpertPlacement placement({1, 2, 1, 0, 2}, 3);
  const SendPlan plan = make_send_plan(routing_of(4, {0, 1, 2, 4, /**/ 0, 2, 3, 4}), placement, 0);
  EXPECT_EQ(plan.send_counts, (std::vector<std::int64_t>{0, 2, 2}));
  EXPECT_EQ(plan.send_tokens, (std::vector<std::int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(plan.return_counts, (std::vector<std::int64_t>{0, 4, 3}));
  EXPECT_EQ(plan.return_rows, (std::vector<std::int32_t>{0, 4, 1, 5, 2, 3, -1, 6}));
}

TEST(ExecutePlan, orders_outputs_by_slot_then_rank) {
  const ExpertPlacement placement(4, 2);
  const Routing own = routing_of(2, {0, 1, /**/ 1, 3});
  const std::vector<ExpertId> received = routing_of(2, {0, 2, /**/ 0, 1}).experts;
  const std::vector<std::int64_t> counts = {0, 2};
  const ExecutePlan plan =
      make_execute_plan(own, {.experts = received, .counts = counts}, placement, 0);
  EXPECT_EQ(plan.slot_begin, (std::vector<std::int64_t>{0, 3, 6}));
  EXPECT_EQ(plan.output_sources, (std::vector<std::int32_t>{0, 2, 3, /**/ 0, 1, 3}));
  EXPECT_EQ(plan.output_words, (std::vector<std::int32_t>{0, 0, 0, /**/ 1, 0, 1}));
  EXPECT_EQ(plan.own_outputs, (std::vector<std::int32_t>{0, 3, 4, -1}));
  EXPECT_EQ(plan.return_outputs, (std::vector<std::int32_t>{1, 2, 5}));
  EXPECT_EQ(plan.return_counts, (std::vector<std::int64_t>{0, 3}));
}

TEST(Plans, one_result_stands_for_all_choices_of_a_row) {
  const ExpertPlacement placement(6, 3);
  SendPlan send;
  DispatchPlanner(placement, 0, Combine::fast)
      .plan_sends(routing_of(3, {0, 2, 3, /**/ 1, 4, 5, /**/ 2, 3, 4}), send);
  EXPECT_EQ(send.send_counts, (std::vector<std::int64_t>{0, 2, 2}));
  EXPECT_EQ(send.return_counts, (std::vector<std::int64_t>{0, 2, 2}));
  EXPECT_EQ(send.return_rows, (std::vector<std::int32_t>{-1, 0, -1, -1, 2, -1, 1, -1, 3}));

  const ExpertPlacement halves(4, 2);
  const Routing own = routing_of(2, {0, 1, /**/ 1, 3});
  const std::vector<ExpertId> received = routing_of(2, {0, 2, /**/ 0, 1}).experts;
  const std::vector<std::int64_t> counts = {0, 2};
  ExecutePlan plan;
  DispatchPlanner(halves, 0, Combine::fast)
      .plan_execution(own, {.experts = received, .counts = counts}, plan);
  EXPECT_EQ(plan.slot_begin, (std::vector<std::int64_t>{0, 3, 6}));
  EXPECT_EQ(plan.own_outputs, (std::vector<std::int32_t>{0, -1, 4, -1}));
  EXPECT_EQ(plan.return_outputs, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(plan.return_counts, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(plan.results_saved, 1);
  EXPECT_EQ(plan.part_outputs, (std::vector<std::int32_t>{0, 3, /**/ 4, /**/ 1, /**/ 2, 5}));
  EXPECT_EQ(plan.part_begin, (std::vector<std::int64_t>{0, 2, 3, 4, 6}));
  EXPECT_EQ(plan.output_parts, (std::vector<std::int32_t>{0, 2, 3, 0, 1, 3}));

  PartQueue parts;
  parts.start(plan);
  EXPECT_TRUE(std::ranges::equal(parts.add(0, 3), std::vector{2}));
  EXPECT_TRUE(std::ranges::equal(parts.outputs_of(3), std::vector{2, 5}));
  EXPECT_TRUE(std::ranges::equal(parts.add(4, 2), std::vector{1, 3}));
  EXPECT_TRUE(std::ranges::equal(parts.add(3, 1), std::vector{0}));
}

TEST(ExecutePlan, refuses_an_expert_that_does_not_exist) {
  const ExpertPlacement placement(4, 2);
  const std::vector<std::int64_t> counts = {0, 1};
  for (const std::int32_t bad : {4, -1}) {
    const std::vector<ExpertId> received = routing_of(2, {0, bad}).experts;
    EXPECT_THROW((void)make_execute_plan(routing_of(2, {}), {.experts = received, .counts = counts},
                                         placement, 0),
                 Error);
  }
}

/// All ranks' plans together: what each rank sends back is what its peer expects, choice by choice.
TEST(Plans, of_all_ranks_fit_together) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 5);
    const std::int64_t experts = ranks + static_cast<std::int64_t>(random() % 12);
    const auto topk = 1 + static_cast<std::int64_t>(
                              random() % static_cast<unsigned>(std::min<std::int64_t>(experts, 6)));
    std::vector<int> owners;  // of half the rounds anywhere
    for (std::int64_t e = 0; e < experts; ++e) {
      owners.push_back(static_cast<int>(random() % static_cast<unsigned>(ranks)));
    }
    const ExpertPlacement placement =
        round % 2 == 0 ? ExpertPlacement(experts, ranks) : ExpertPlacement(owners, ranks);
    std::vector<Routing> routings;
    std::vector<SendPlan> sends;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<int> choices;
      for (unsigned t = random() % 20; t > 0; --t) {  // some ranks have no tokens
        std::vector<int> all(static_cast<std::size_t>(experts));
        std::iota(all.begin(), all.end(), 0);
        std::ranges::shuffle(all, random);
        std::sort(all.begin(), all.begin() + topk);
        choices.insert(choices.end(), all.begin(), all.begin() + topk);
      }
      routings.push_back(routing_of(topk, choices));
      sends.push_back(make_send_plan(routings.back(), placement, rank));
    }
    // returned[home]: (token, expert) of every result row in the order of arrival.
    std::vector<std::vector<std::pair<int, std::int64_t>>> returned(
        static_cast<std::size_t>(ranks));
    std::vector<std::vector<std::vector<std::pair<int, std::int64_t>>>> by_peer(
        static_cast<std::size_t>(ranks),
        std::vector<std::vector<std::pair<int, std::int64_t>>>(static_cast<std::size_t>(ranks)));
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<ExpertId> ids;
      std::vector<std::int64_t> counts;
      std::vector<std::pair<int, int>> origins;  // (home, token) of each received row
      for (int home = 0; home < ranks; ++home) {
        const SendPlan& send = sends[static_cast<std::size_t>(home)];
        const auto first = std::accumulate(send.send_counts.begin(),
                                           send.send_counts.begin() + rank, std::int64_t{0});
        counts.push_back(send.send_counts[static_cast<std::size_t>(rank)]);
        for (std::int64_t i = first; i < first + counts.back(); ++i) {
          const std::int32_t token = send.send_tokens[static_cast<std::size_t>(i)];
          origins.emplace_back(home, token);
          for (const ExpertId e : routings[static_cast<std::size_t>(home)].experts_of(token)) {
            ids.push_back(e);
          }
        }
      }
      const Routing& own = routings[static_cast<std::size_t>(rank)];
      const ExecutePlan plan =
          make_execute_plan(own, {.experts = ids, .counts = counts}, placement, rank);
      std::size_t next = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        for (std::int64_t i = 0; i < plan.return_counts[static_cast<std::size_t>(peer)]; ++i) {
          const std::int32_t output = plan.return_outputs[next++];
          const std::int32_t source = plan.output_sources[static_cast<std::size_t>(output)];
          ASSERT_GE(source, own.num_tokens);
          const auto& origin = origins[static_cast<std::size_t>(source - own.num_tokens)];
          ASSERT_EQ(origin.first, peer);
          const auto slot =
              std::ranges::upper_bound(plan.slot_begin, output) - plan.slot_begin.begin() - 1;
          by_peer[static_cast<std::size_t>(peer)][static_cast<std::size_t>(rank)].emplace_back(
              origin.second, static_cast<std::int64_t>(
                                 placement.experts_of(rank)[static_cast<std::size_t>(slot)]));
        }
      }
      ASSERT_EQ(next, plan.return_outputs.size());
    }
    for (int home = 0; home < ranks; ++home) {
      auto& rows = returned[static_cast<std::size_t>(home)];
      for (const auto& part : by_peer[static_cast<std::size_t>(home)])
        rows.insert(rows.end(), part.begin(), part.end());
      const Routing& routing = routings[static_cast<std::size_t>(home)];
      const SendPlan& send = sends[static_cast<std::size_t>(home)];
      std::set<std::int32_t> used;
      for (std::size_t choice = 0; choice < routing.experts.size(); ++choice) {
        const std::int32_t row = send.return_rows[choice];
        const bool own = placement.rank_of(routing.experts[choice]) == home;
        ASSERT_EQ(row < 0, own);
        if (own) continue;
        ASSERT_TRUE(used.insert(row).second);
        ASSERT_EQ(rows[static_cast<std::size_t>(row)].first, static_cast<int>(choice) / topk);
        ASSERT_EQ(rows[static_cast<std::size_t>(row)].second,
                  static_cast<std::int64_t>(routing.experts[choice]));
      }
      ASSERT_EQ(used.size(), rows.size());
    }
  }
}

}  // namespace
}  // namespace moesaic
