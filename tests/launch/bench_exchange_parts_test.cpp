// What the verb bench exchange is made of.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "comm/thread_communicator.h"
#include "kernels/kernel_table.h"
#include "launch/bench/exchange_bed.h"
#include "launch/study/shape_layer.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

constexpr LayerShape kLayer{.experts = 12, .hidden = 40, .intermediate = 8, .topk = 3};
constexpr RoutingKind kKinds[] = {RoutingKind::even, RoutingKind::skewed, RoutingKind::hot_rank};

LayerRouting routing_of(RoutingKind kind, std::int64_t tokens, const ExpertPlacement& placement) {
  return {kind, kLayer, tokens * placement.num_ranks(), placement.num_local_experts(0)};
}

TEST(LayerRouting, AHotRankGetsAllThatItsExpertsCanTake) {
  const LayerRouting all_hot(RoutingKind::hot_rank, kLayer, 8, 4);
  EXPECT_EQ(all_hot.rows_of_experts(),
            (std::vector<std::int64_t>{6, 6, 6, 6, 0, 0, 0, 0, 0, 0, 0, 0}));
  const LayerRouting two_hot(RoutingKind::hot_rank, kLayer, 10, 2);
  EXPECT_EQ(two_hot.rows_of_experts(),
            (std::vector<std::int64_t>{10, 10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  for (std::int64_t token = 0; token < 10; ++token) {
    const auto experts = two_hot.experts_of(token);
    EXPECT_EQ(std::set(experts.begin(), experts.end()).size(), 3U);
    EXPECT_TRUE(std::is_sorted(experts.begin(), experts.end()));
  }
}

/// Counts by the definition: token by token, rank by rank.
void expect_counts(const ExchangeLoads& loads, const LayerRouting& routing,
                   const ExpertPlacement& placement) {
  const int ranks = loads.num_ranks();
  const std::int64_t tokens = routing.num_tokens() / ranks;
  std::int64_t far_rows = 0;
  std::int64_t far_results = 0;
  std::int64_t choices = 0;
  std::int64_t rows = 0;
  for (int home = 0; home < ranks; ++home) {
    std::vector<std::int64_t> results(static_cast<std::size_t>(ranks));
    std::vector<std::int64_t> tokens_there(static_cast<std::size_t>(ranks));
    for (std::int64_t token = home * tokens; token < (home + 1) * tokens; ++token) {
      std::set<int> reached;
      std::set<int> far_nodes;
      for (const ExpertId expert : routing.experts_of(token)) {
        const int rank = placement.rank_of(expert);
        ++results[static_cast<std::size_t>(rank)];
        reached.insert(rank);
        choices += rank == home ? 0 : 1;
        if (loads.node_of(rank) == loads.node_of(home)) continue;
        far_nodes.insert(loads.node_of(rank));
        ++far_results;
      }
      for (const int rank : reached) ++tokens_there[static_cast<std::size_t>(rank)];
      rows += std::ssize(reached) - (reached.contains(home) ? 1 : 0);
      far_rows += std::ssize(far_nodes);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(loads.results(home, rank), results[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(loads.rows(home, rank), tokens_there[static_cast<std::size_t>(rank)]);
    }
  }
  const std::int64_t nothing = loads.far_bytes({});
  EXPECT_EQ(loads.far_bytes({.activations = 1000, .result = 1}) - nothing,
            1000 * far_rows + far_results);
  if (rows == 0) {
    EXPECT_TRUE(std::isnan(loads.choices_of_row()));
  } else {
    EXPECT_DOUBLE_EQ(loads.choices_of_row(),
                     static_cast<double>(choices) / static_cast<double>(rows));
  }
}

TEST(ExchangeLoads, CountRowsOnceARankAndOnceANode) {
  const std::vector<std::vector<int>> nodes_of_ranks = {{0},          {0, 0},       {0, 1},
                                                        {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2, 2}};
  for (const std::vector<int>& nodes : nodes_of_ranks) {
    const ExpertPlacement placement(kLayer.experts, static_cast<int>(nodes.size()));
    for (const RoutingKind kind : kKinds) {
      const LayerRouting routing = routing_of(kind, 7, placement);
      const ExchangeLoads loads(routing, placement, nodes);
      expect_counts(loads, routing, placement);
      const ExchangeLoads added(routing, placement, nodes, Combine::fast);
      for (int home = 0; home < loads.num_ranks(); ++home) {
        for (int rank = 0; rank < loads.num_ranks(); ++rank) {
          EXPECT_EQ(added.rows(home, rank), loads.rows(home, rank));
          if (loads.num_nodes() > 1) continue;
          EXPECT_EQ(added.results(home, rank), loads.rows(home, rank));
        }
        for (int node = 0; node < loads.num_nodes() && loads.num_nodes() > 1; ++node) {
          EXPECT_EQ(added.results_of_node(home, node), loads.rows_of_node(home, node));
        }
      }
    }
  }
}

TEST(ShapeLayer, GivesTheSameOnAnyNumberOfRanks) {
  constexpr std::int64_t kTokens = 6;  // of all ranks
  const Isa isa = supported_isas().back();
  const LayerRouting routing(kLayer, kTokens, std::vector<double>(12, 1.0), 3);
  std::vector<std::vector<float>> results;
  for (const int ranks : {1, 2, 3}) {
    const ShapePoint point{
        .shape = kLayer, .layout = {}, .pass_tokens = kTokens / ranks, .passes = 2};
    const ModelPlacement placement(ExpertPlacement(kLayer.experts, ranks));
    std::vector<float>& all = results.emplace_back(kTokens * kLayer.hidden);
    run_thread_ranks(ranks, [&](Communicator& world) {
      ThreadPool pool(1);
      const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool};
      ShapeLayer layer({point, routing, placement, world.rank(), compute});
      const std::unique_ptr<PointWork> work = layer.work_over(world);
      work->run();
      layer.check(*work);
      EXPECT_EQ(work->counts().rows.at(0).size(), 12U);
      for (std::int64_t token = 0; token < point.pass_tokens; ++token) {
        const std::int64_t place = world.rank() * point.pass_tokens + token;
        std::ranges::copy(layer.results().row(token), all.begin() + place * kLayer.hidden);
      }
    });
  }
  EXPECT_GT(std::ranges::max(results[0]), 0);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(LayerShape, IsAModelOrFourNumbers) {
  EXPECT_EQ(parse_layer_shape("12x40x8x3", 0), kLayer);
  EXPECT_EQ(parse_layer_shape("12,40,8,3", 0), kLayer);
  EXPECT_EQ(parse_layer_shape("granite", 64).experts, 64);
  for (const char* text : {"12x40x8", "12x40x8x3x", "12x40x8x0", "12,40x8,3", "4x40x8x5"}) {
    EXPECT_NE(test::error_message([&] { (void)parse_layer_shape(text, 0); }, ErrorKind::usage)
                  .find("--shape"),
              std::string::npos)
        << text;
  }
}

TEST(ExchangeBed, FindsEveryByteRightAndKnowsWrongOnes) {
  for (const auto& [ranks, ranks_per_node] : {std::pair(1, 0), {3, 0}, {3, 2}}) {
    const ExpertPlacement placement(kLayer.experts, ranks);
    for (const RoutingKind kind : kKinds) {
      using enum RowSource::Element;
      const Int8Rows row_codes(kLayer.hidden, Int8Rows::Scales::block);
      for (const auto& [element, wire, has_codes] : {std::tuple(bf16, WireForm::exact, false),
                                                     {f32, WireForm::exact, false},
                                                     {bf16, WireForm::bf16, false},
                                                     {bf16, WireForm::int8, false},
                                                     {bf16, WireForm::exact, true}}) {
        const std::optional<Int8Rows> codes = has_codes ? std::optional(row_codes) : std::nullopt;
        const LayerRouting routing = routing_of(kind, 9, placement);
        const Combine combine = kind == RoutingKind::skewed ? Combine::fast : Combine::ordered;
        const auto body = [&, num_ranks = ranks, row = element, form = wire](Communicator& world) {
          std::optional<ExpertNodes> nodes;
          if (combine == Combine::fast && world.has_messages()) nodes.emplace(world);
          ExchangeBed bed(world, {kLayer, placement, routing, row, form, combine,
                                  nodes ? &*nodes : nullptr, codes});
          for (int run = 0; run < 3; ++run) {
            bed.prepare();
            (void)bed.exchange();
            EXPECT_EQ(bed.count_wrong(), 0);
          }
          if (num_ranks == 1) return;
          // Contents of an earlier run are wrong ones.
          (void)bed.exchange();
          bed.prepare();
          EXPECT_GT(bed.count_wrong(), combine == Combine::fast ? 0 : 9 * kLayer.hidden);
        };
        run_thread_ranks(ranks, body, {.ranks_per_node = ranks_per_node});
      }
    }
  }
}

}  // namespace
}  // namespace moesaic
