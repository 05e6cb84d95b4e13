// Plans of ranks that add their results of a token before one of them has the sum of a node.

#include "src/moe/node_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "comm/thread_communicator.h"

namespace moesaic {
namespace {

using Ids = std::vector<ExpertId>;

std::size_t at(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

TEST(AddingRank, is_at_home_or_has_its_turn) {
  // Experts 0 1 | 2 3 on the first node, 4 5 | 6 7 on the second.
  const ExpertPlacement placement(8, 4);
  const NodeMap nodes(std::array{0, 0, 1, 1});
  const auto rank = [&](int home, Ids experts, std::size_t node) {
    return adding_rank({home, experts}, placement, nodes, node);
  };
  const auto id = [](int expert) { return ExpertId{expert}; };
  EXPECT_EQ(rank(1, {id(0), id(3)}, 0), 1);
  EXPECT_EQ(rank(0, {id(0), id(3)}, 0), 0);
  EXPECT_EQ(rank(0, {id(2), id(3)}, 0), 1);  // home has none of them
  EXPECT_EQ(rank(0, {id(0), id(3)}, 1), -1);
  EXPECT_EQ(rank(0, {id(4), id(6)}, 1), 2);  // 4 modulo 2 of two choices
  EXPECT_EQ(rank(0, {id(5), id(6)}, 1), 3);
  EXPECT_EQ(rank(0, {id(1), id(4), id(5), id(7)}, 1), 2);
  EXPECT_EQ(rank(0, {id(5), id(6), id(7)}, 1), 3);
}

/// What all ranks plan for the tokens of each.
struct Plans {
  Plans(std::mt19937& random, const ExpertPlacement& experts, const NodeMap& node_map)
      : placement(experts), nodes(node_map) {
    constexpr std::int64_t topk = 4;
    for (int rank = 0; rank < placement.num_ranks(); ++rank) {
      Routing& routing = routings.emplace_back();
      routing.topk = topk;
      routing.num_tokens = random() % 12;  // some ranks have none
      for (std::int64_t token = 0; token < routing.num_tokens; ++token) {
        Ids all;
        for (std::int32_t id = 0; id < placement.num_experts(); ++id) all.push_back(ExpertId{id});
        std::ranges::shuffle(all, random);
        std::sort(all.begin(), all.begin() + topk);
        routing.experts.insert(routing.experts.end(), all.begin(), all.begin() + topk);
      }
      planner(rank).plan_sends(routing, sends.emplace_back());
    }
    for (int rank = 0; rank < placement.num_ranks(); ++rank) plan_execution(rank);
  }

  [[nodiscard]] DispatchPlanner planner(int rank) const {
    return {placement, rank, Combine::fast, &nodes};
  }

  void plan_execution(int rank) {
    Ids ids;
    std::vector<std::int64_t> counts;
    auto& sources = tokens.emplace_back();
    const Routing& own = routings[at(rank)];
    for (int token = 0; token < own.num_tokens; ++token) sources.emplace_back(rank, token);
    for (int home = 0; home < placement.num_ranks(); ++home) {
      const SendPlan& send = sends[at(home)];
      counts.push_back(send.send_counts[at(rank)]);
      const auto first = std::accumulate(send.send_counts.begin(), send.send_counts.begin() + rank,
                                         std::int64_t{0});
      for (std::int64_t row = first; row < first + counts.back(); ++row) {
        const std::int32_t token = send.send_tokens[at(row)];
        sources.emplace_back(home, token);
        const auto experts = routings[at(home)].experts_of(token);
        ids.insert(ids.end(), experts.begin(), experts.end());
      }
    }
    planner(rank).plan_execution(own, {.experts = ids, .counts = counts},
                                 executions.emplace_back());
  }

  /// Home and token of an output.
  [[nodiscard]] std::pair<int, int> token_of(int rank, std::int32_t output) const {
    return tokens[at(rank)][at(executions[at(rank)].output_sources[at(output)])];
  }

  const ExpertPlacement& placement;
  const NodeMap& nodes;
  std::vector<Routing> routings;
  std::vector<SendPlan> sends;
  std::vector<std::vector<std::pair<int, int>>> tokens;  // [ranks][sources] home and token
  std::vector<ExecutePlan> executions;
};

std::vector<std::int32_t> part_of(const std::vector<std::int32_t>& all,
                                  const std::vector<std::int64_t>& counts, int rank) {
  const auto first = std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
  return {all.begin() + first, all.begin() + first + counts[at(rank)]};
}

/// What leaves is what is awaited, token by token.
void expect_parts_to_meet(const Plans& plans) {
  for (int rank = 0; rank < plans.placement.num_ranks(); ++rank) {
    const ExecutePlan::NodeParts& own = plans.executions[at(rank)].node_parts;
    const NodeMap::Place place = plans.nodes.place_of(rank);
    for (const int peer : plans.nodes.ranks_of(place.node)) {
      const ExecutePlan::NodeParts& other = plans.executions[at(peer)].node_parts;
      const auto sent = part_of(own.send_outputs, own.send_counts, plans.nodes.place_of(peer).rank);
      const auto awaited = part_of(other.recv_outputs, other.recv_counts, place.rank);
      ASSERT_EQ(sent.size(), awaited.size());
      for (std::size_t i = 0; i < sent.size(); ++i) {
        ASSERT_EQ(plans.token_of(rank, sent[i]), plans.token_of(peer, awaited[i]));
      }
    }
  }
}

/// Each node that has experts of a token has one sum, at home or on its way there, and it has come
/// in the place of the token's first choice there.
void expect_a_sum_of_each_node(const Plans& plans, int home) {
  const Routing& routing = plans.routings[at(home)];
  const SendPlan& send = plans.sends[at(home)];
  std::vector<std::pair<int, int>> come;  // token and rank of results
  for (int rank = 0; rank < plans.placement.num_ranks(); ++rank) {
    const ExecutePlan& plan = plans.executions[at(rank)];
    const auto returned = part_of(plan.return_outputs, plan.return_counts, home);
    ASSERT_EQ(std::ssize(returned), send.return_counts[at(rank)]);
    for (const std::int32_t output : returned) {
      const auto [of, token] = plans.token_of(rank, output);
      ASSERT_EQ(of, home);
      come.emplace_back(token, rank);
    }
  }
  std::set<std::int32_t> used;
  std::set<std::pair<std::int64_t, std::size_t>> met;  // tokens and nodes
  for (std::int64_t choice = 0; choice < std::ssize(routing.experts); ++choice) {
    const std::int64_t token = choice / routing.topk;
    const int owner = plans.placement.rank_of(routing.experts[at(choice)]);
    const std::size_t node = plans.nodes.place_of(owner).node;
    const bool is_first = met.insert({token, node}).second;
    const std::int32_t row = send.return_rows[at(choice)];
    const std::int32_t own = plans.executions[at(home)].own_outputs[at(choice)];
    ASSERT_EQ(is_first ? 1 : 0, (row >= 0 ? 1 : 0) + (own >= 0 ? 1 : 0));
    if (own >= 0) {
      ASSERT_EQ(plans.token_of(home, own), std::pair(home, static_cast<int>(token)));
    }
    if (row < 0) continue;
    ASSERT_TRUE(used.insert(row).second);
    ASSERT_EQ(come[at(row)].first, token);
    ASSERT_EQ(plans.nodes.place_of(come[at(row)].second).node, node);
  }
  ASSERT_EQ(used.size(), come.size());
}

TEST(Plans, of_ranks_that_add_in_their_nodes_fit_together) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 6);
    const std::int64_t experts = ranks + 4 + static_cast<std::int64_t>(random() % 12);
    std::vector<int> owners;  // of half the rounds anywhere
    for (std::int64_t e = 0; e < experts; ++e) {
      owners.push_back(static_cast<int>(random() % static_cast<unsigned>(ranks)));
    }
    const ExpertPlacement placement =
        round % 2 == 0 ? ExpertPlacement(experts, ranks) : ExpertPlacement(owners, ranks);
    std::vector<int> ids;
    for (int rank = 0; rank < ranks; ++rank) ids.push_back(static_cast<int>(random() % 3));
    const NodeMap nodes(ids);
    const Plans plans(random, placement, nodes);
    expect_parts_to_meet(plans);
    for (int home = 0; home < ranks; ++home) expect_a_sum_of_each_node(plans, home);
  }
}

TEST(NodeSums, AddInTheOrderOfRanks) {
  // Output 1 of rank 1 gets parts of ranks 0 and 2, its output 0 one of rank 2.
  std::array<ExecutePlan, 3> plans;
  for (ExecutePlan& plan : plans) {
    plan.output_sources.resize(2);
    plan.node_parts = {
        .send_outputs = {}, .send_counts = {0, 0, 0}, .recv_outputs = {}, .recv_counts = {0, 0, 0}};
  }
  plans[0].node_parts.send_outputs = {1};
  plans[0].node_parts.send_counts = {0, 1, 0};
  plans[2].node_parts.send_outputs = {0, 1};
  plans[2].node_parts.send_counts = {0, 2, 0};
  plans[1].node_parts.recv_outputs = {1, 0, 1};
  plans[1].node_parts.recv_counts = {1, 0, 2};
  constexpr std::int64_t hidden = 100;
  const std::array<float, 3> size = {1e8F, 1.0F, -1e8F};  // the order shows
  std::map<int, std::vector<float>> sums;
  run_thread_ranks(3, [&](Communicator& world) {
    std::vector<float> outputs;
    for (std::int64_t i = 0; i < 2 * hidden; ++i) {
      outputs.push_back(size[at(world.rank())] * (i < hidden ? 1.0F : 2.0F));
    }
    NodeSums node;
    node.plan(plans[at(world.rank())], world.rank());
    node.start(world, {outputs.data(), 2, hidden}, plans[at(world.rank())], {});
    node.mark_ready(1, 1);
    node.mark_ready(0, 1);
    node.wait();
    EXPECT_EQ(node.outputs().size(), world.rank() == 1 ? 2U : 0U);
    for (std::size_t i = 0; i < node.outputs().size(); ++i) {
      const std::int32_t output = node.outputs()[i];
      EXPECT_TRUE(node.awaits(output));
      node.add(i, {outputs.data() + output * hidden, at(hidden)});
    }
    node.end();
    if (world.rank() == 1) sums[1] = outputs;
  });
  for (std::int64_t i = 0; i < hidden; ++i) {
    EXPECT_EQ(sums[1][at(i)], 1.0F - 1e8F);
    EXPECT_EQ(sums[1][at(hidden + i)], (2e8F + 2.0F) - 2e8F);
  }
}

}  // namespace
}  // namespace moesaic
