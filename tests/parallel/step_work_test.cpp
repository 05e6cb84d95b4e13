#include "src/parallel/step_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/parallel/test_model.h"

namespace moesaic {
namespace {

using test::test_model;

TEST(CostRanks, those_that_share_the_experts_are_on_some_of_the_nodes) {
  const CostRanks ranks{.ranks = 10, .ranks_per_node = 3, .expert_replicas = 2};
  EXPECT_EQ(ranks.nodes(), 4);
  EXPECT_EQ(ranks.sharers(), 5);
  EXPECT_EQ(ranks.sharer_nodes(), 2);
  const CostRanks few{.ranks = 2, .ranks_per_node = 4};
  EXPECT_EQ(few.on_node(), 2);
  EXPECT_EQ(few.sharer_nodes(), 1);
}

TEST(CostRanks, those_of_the_first_copy_have_most_of_the_texts) {
  const CostRanks ranks{.ranks = 8, .ranks_per_node = 4, .expert_replicas = 2};
  EXPECT_EQ(ranks.texts_of_sharers(3), 3);
  EXPECT_EQ(ranks.texts_of_sharers(6), 4);
  EXPECT_EQ(ranks.texts_of_sharers(16), 8);
  EXPECT_EQ(ranks.texts_of_sharers(17), 9);
}

double experts_met(const StepWork& work) {
  double met = 0;
  for (const StepWork::Product& product : work.products) {
    if (product.phase == Phase::experts) met += product.times;
  }
  return met;
}

double expert_rows(const StepWork& work) {
  double rows = 0;
  for (const StepWork::Product& product : work.products) {
    if (product.phase == Phase::experts) rows += product.times * product.rows;
  }
  return rows;
}

/// How likely none of 8 different experts of 128 is among `experts` of them.
double none_of(double experts) {
  double none = 1;
  for (int k = 0; k < 8; ++k) none *= 1 - experts / (128 - k);
  return none;
}

TEST(StepWork, even_routing_sends_what_the_closed_form_says) {
  for (const int ranks : {2, 4, 16}) {
    const StepEstimate estimate =
        estimate_step(test_model(8), {.ranks = ranks, .ranks_per_node = ranks}, {.rows = 256},
                      ExpertPopularity::even());
    const ExpertTraffic& traffic = estimate.traffic;
    EXPECT_NEAR(traffic.rows, (ranks - 1) * (1 - none_of(128.0 / ranks)), 0.01 * ranks);
    EXPECT_NEAR(traffic.results, 8.0 * (ranks - 1) / ranks, 0.05);
    EXPECT_NEAR(traffic.dispatch_bytes, traffic.rows * 2032, 1e-6);
    EXPECT_NEAR(traffic.combine_bytes, traffic.results * 4000, 1e-6);
    EXPECT_EQ(traffic.inter_node_bytes, 0);
    const double step = 8.0 * 256 * ranks;  // tokens x layers: of the one node
    EXPECT_NEAR(estimate.work.node_bytes / step, traffic.dispatch_bytes + traffic.combine_bytes,
                1e-6);
    EXPECT_EQ(estimate.work.link_bytes, 0);
  }
}

TEST(StepWork, added_results_leave_a_node_once) {
  const CostRanks ranks{.ranks = 8, .ranks_per_node = 2};
  CostModel model = test_model(4);
  model.wire.part_bytes = 4000;
  const StepEstimate estimate =
      estimate_step(model, ranks, {.rows = 512}, ExpertPopularity::even());
  const double nodes = 1 - none_of(32);  // that have one of the experts, of four
  const double own = 1 - none_of(16);    // whether one rank of a node has
  // A node sends one result, also to its own rank if that has none; its other rank a part to add.
  const double near_results = nodes - own;
  const double parts = 4 * (2 * own - nodes);
  const ExpertTraffic& traffic = estimate.traffic;
  EXPECT_NEAR(traffic.results, 3 * nodes + near_results, 0.01);
  const double far_head = 3 * 8 * (96 + 16 + 32) / (512.0 * 8) + 3 * nodes * 4;
  EXPECT_NEAR(traffic.combine_bytes, (traffic.results + parts) * 4000 + far_head, 100);
}

TEST(StepWork, a_row_goes_once_to_each_other_node) {
  const CostRanks ranks{.ranks = 8, .ranks_per_node = 2};
  const double tokens = 512 * 8;
  const StepEstimate estimate =
      estimate_step(test_model(4), ranks, {.rows = 512}, ExpertPopularity::even());
  const double far_rows = tokens * 3 * (1 - none_of(32));  // nodes with 32 of the experts
  const double far_choices = tokens * 6 * (1 - none_of(16));
  const double far_results = tokens * 8 * 6 / 8;
  const double messages = 8 * 3;
  const double expected =
      messages * 2 * (96 + 16 + 32) + 4 * far_choices + far_rows * 2032 + far_results * (4 + 4000);
  EXPECT_NEAR(estimate.traffic.inter_node_bytes * tokens, expected, 0.005 * expected);
  EXPECT_NEAR(estimate.work.link_bytes / 4, expected / 4, 0.02 * expected / 4);  // of one node
  // Messages there and back, each in pieces of nearly 64 KiB of which the last is half full.
  const double pieces = expected / (65536 - 256) + 0.5 * 2 * messages;
  EXPECT_NEAR(estimate.traffic.messages * 8, pieces, 0.02 * pieces);
  EXPECT_EQ(layout_of({.rows = 3, .choices = 4}, 2, 100, 12, false).end, 192 + 3 * 88);
  EXPECT_EQ(layout_of({.rows = 3, .choices = 3}, 1, 100, 12, false).end, 192 + 3 * 88);
  EXPECT_EQ(layout_of({}, 1, 100, 12, false).end, 128);
  EXPECT_EQ(layout_of({.rows = 9, .choices = 9}, 1, 100, 0, true).end, 128 + 9 * 100);
  // Which rows they are.
  const FarRows by_expert{.rows = 9, .choices = 9, .is_sorted = false};
  EXPECT_EQ(layout_of(by_expert, 1, 100, 0, true).end, 192 + 9 * 100);
}

TEST(StepWork, messages_are_those_whose_bytes_are_counted) {
  const CostRanks ranks{.ranks = 8, .ranks_per_node = 2};
  const CostStep step{.rows = 512};  // as many tokens as are drawn at once
  CostModel model = test_model(4);
  model.wire.results_come_later = false;  // each piece is full but the last
  const StepEstimate estimate = estimate_step(model, ranks, step, ExpertPopularity::even());
  const StepMessages messages = estimate_messages(model, ranks, step, ExpertPopularity::even());
  ASSERT_EQ(messages.layers.size(), 4U);
  EXPECT_EQ(messages.each, 1);
  double far = 0;
  double pieces = 0;
  double there = 0;
  for (const LayerMessages& layer : messages.layers) {
    ASSERT_EQ(layer.nodes, 4);
    for (int rank = 0; rank < 8; ++rank) {
      for (int node = 0; node < 4; ++node) {
        const LayerMessages::Bytes& bytes = layer.of(rank, node);
        there += bytes.there;
        if (node == rank / 2) continue;
        far += bytes.there + bytes.back;
        pieces += (std::ceil(bytes.there / 65280) + std::ceil(bytes.back / 65280)) / 8;
      }
    }
  }
  const double all = 4 * 512 * 8;  // tokens in layers
  EXPECT_NEAR(far / all, estimate.traffic.inter_node_bytes, 1e-6 * far / all);
  EXPECT_NEAR(there / all, estimate.traffic.dispatch_bytes, 1e-6 * there / all);
  EXPECT_NEAR(pieces, 4 * estimate.traffic.messages, 1e-9 * pieces);
  EXPECT_NEAR(estimate.work.link_messages, 4 * 2 * 3, 1e-9);  // layers, ways, other nodes
}

TEST(StepWork, ranks_without_texts_have_no_rows_and_those_of_others_count_once) {
  const CostRanks ranks{.ranks = 8, .ranks_per_node = 1};
  const auto estimate = [&](const CostStep& step) {
    return estimate_step(test_model(4), ranks, step, ExpertPopularity::even());
  };
  EXPECT_DOUBLE_EQ((CostStep{.rows = 32, .texts = 5}).all_rows(4), 80);  // 32 and three times 16
  const StepEstimate one = estimate({.rows = 4096, .texts = 1});
  const StepEstimate all = estimate({.rows = 512, .texts = 8});
  // Experts have as much to do, products with common weights are those of the one rank.
  EXPECT_NEAR(expert_rows(one.work), expert_rows(all.work), 0.01 * expert_rows(all.work));
  const auto mixer = [](const StepEstimate& e) { return e.work.products.front().rows; };
  EXPECT_EQ(mixer(one), 4096);
  EXPECT_EQ(mixer(all), 512);
  EXPECT_NEAR(one.traffic.rows, all.traffic.rows, 0.02 * all.traffic.rows);
  // Its node sends all rows and takes all results: eight times what a node has else.
  EXPECT_NEAR(one.work.link_bytes / all.work.link_bytes, 8, 0.3);
  const LayerMessages sent =
      estimate_messages(test_model(4), ranks, {.rows = 4096, .texts = 1}, ExpertPopularity::even())
          .layers.front();
  EXPECT_GT(sent.of(0, 1).there, 100 * sent.of(1, 0).there);
  EXPECT_GT(sent.of(1, 0).back, 100 * sent.of(0, 1).back);
}

TEST(StepWork, the_busiest_rank_counts_and_not_the_mean) {
  // Experts of one token at the busiest of 2, 4 and 8 ranks: 128 over 8 (a table in the literature
  // has 5.1, 3.5 and 2.5).
  for (const auto& [ranks, met] : {std::pair(2, 5.1), {4, 3.5}, {8, 2.5}}) {
    const StepEstimate estimate = estimate_step(test_model(8), {.ranks = ranks},
                                                {.rows = 1.0 / ranks}, ExpertPopularity::even());
    EXPECT_NEAR(experts_met(estimate.work) / 8, met, 0.15) << ranks;
  }
  // Seven of eight rows go to the second rank's experts.
  std::vector<double> rows(128, 1);
  for (std::size_t i = 64; i < 128; ++i) rows[i] = 7;
  const auto skewed = ExpertPopularity::recorded({rows, rows, rows}, 8, "test");
  const StepEstimate estimate = estimate_step(test_model(3), {.ranks = 2}, {.rows = 2000}, skewed);
  EXPECT_NEAR(expert_rows(estimate.work) / (3 * 2 * 2000.0 * 8), 7.0 / 8, 0.01);
  EXPECT_NEAR(estimate.work.rows_max_over_mean, 14.0 / 8, 0.02);
}

TEST(StepWork, drawn_tokens_choose_as_often_as_was_recorded) {
  std::vector<double> rows(32);
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) sum += rows[i] = static_cast<double>(1 + i * i);
  const auto popularity = ExpertPopularity::recorded({rows}, 4, "test");
  ExpertDraw draw(popularity.rates(0, 32), 4);
  std::vector<double> chosen(32);
  for (std::uint64_t token = 0; token < 20000; ++token) {
    const auto experts = draw.next(CounterRandom(1).at(token));
    EXPECT_TRUE(std::ranges::is_sorted(experts));
    for (const ExpertId expert : experts) ++chosen[static_cast<std::size_t>(expert)];
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(chosen[i] / 20000, 4 * rows[i] / sum, 0.02) << i;
  }
}

TEST(StepWork, all_that_is_done_with_a_row_is_counted) {
  CostModel model = test_model(3);
  CostLayer& layer = model.layers.front();
  layer.heads = 600;
  layer.rotated = 700;
  layer.normed = 700;
  layer.stored = 200;
  model.angles = 32;
  model.vocabulary = 5000;
  const StepWork work = estimate_step(model, {}, {.rows = 10, .logits_rows = 2, .sampled_rows = 1},
                                      ExpertPopularity::even())
                            .work;
  const auto numbers = [&](Phase phase, RowOp op) {
    double sum = 0;
    for (const StepWork::Rows& rows : work.rows) {
      if (rows.phase == phase && rows.op == op) sum += rows.times * rows.numbers;
    }
    return sum;
  };
  EXPECT_EQ(numbers(Phase::attention, RowOp::norm), 3 * 2 * 10 * 1000);
  EXPECT_EQ(numbers(Phase::attention, RowOp::head_norm), 10 * 700);
  EXPECT_EQ(numbers(Phase::attention, RowOp::angle), 10 * 32);
  EXPECT_EQ(numbers(Phase::attention, RowOp::attend), 10 * 600);
  EXPECT_EQ(numbers(Phase::attention, RowOp::rotate), 10 * 700);
  EXPECT_EQ(numbers(Phase::attention, RowOp::store), 10 * 200);
  EXPECT_EQ(numbers(Phase::attention, RowOp::copy), 2 * 10 * 600 + 10 * 1000);  // the embedding too
  EXPECT_EQ(numbers(Phase::dispatch, RowOp::round), 3 * 10 * 1000);
  EXPECT_EQ(numbers(Phase::combine, RowOp::sum), 3 * 10 * 8 * 1000);
  EXPECT_EQ(numbers(Phase::head, RowOp::norm), 2 * 1000);
  EXPECT_EQ(numbers(Phase::head, RowOp::sample), 5000);
  EXPECT_EQ(numbers(Phase::head, RowOp::add), 0);
  EXPECT_EQ(work.scores, 3 * 10 * 128);
  EXPECT_EQ(work.choices, 3 * 10 * 8);
  EXPECT_NEAR(work.planned, 3 * 10 * 8, 1e-9);
  EXPECT_NEAR(work.groups[static_cast<std::size_t>(Phase::experts)], experts_met(work), 1e-9);
  EXPECT_DOUBLE_EQ(work.held_bytes, 3 * (2e6 + 4e4 + 128 * 3e6) + 1e7);
}

}  // namespace
}  // namespace moesaic
