#include "src/parallel/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/parallel/cost_terms.h"
#include "tests/parallel/test_machine.h"
#include "tests/parallel/test_model.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;
using test::term_seconds;
using test::test_machine;
using test::test_model;

TEST(StepCost, time_is_the_sum_of_terms_that_name_their_sources) {
  const CostRanks ranks{.ranks = 4, .ranks_per_node = 2, .threads = 2};
  const CostWeights expert{Format::int8, 3e6, 3e6, 4000, 2000, 1000, 500};
  const StepWork work{
      .products = {{.phase = Phase::experts,
                    .with = expert,
                    .rows = 40,
                    .times = 10,
                    .is_rounded = true,
                    .is_streamed = true},
                   {.phase = Phase::attention,
                    .with = {Format::bf16, 1e6, 2e6, 0, 100, 50},
                    .rows = 1,
                    .times = 2}},
      .rows = {{Phase::combine, RowOp::sum, 1e6, 2}, {Phase::combine, RowOp::sum, 1e4, 1}},
      .attention_flops = 1e9,
      .head_dim = 128,
      .cache_bytes = 1e6,
      .held_bytes = 1e9,
      .scores = 1e4,
      .choices = 1e3,
      .planned = 1e3,
      .jobs = {100},
      .calls = {10},
      .groups = {1},
      .node_messages = 3,
      .link_messages = 5,
      .node_bytes = 1e6,
      .link_bytes = 4e6};
  const StepCost cost = step_cost(work, ranks, test_machine());
  // Two ranks of a node have two threads each: all four cores, half a node for each.
  EXPECT_NEAR(term_seconds(cost, "experts.int8"), 2 * 10 * (3e6 * 2.5e-12 + 4000 * 1e-9), 1e-12);
  EXPECT_NEAR(term_seconds(cost, "experts.pack"), 2 * 400 * 2000 * 2e-10, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "experts.results"), 2 * 400 * 1000 * 1e-9, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "experts.gates"), 2 * 400 * 500 * 12e-10, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "attention.bf16"), 2 * 2 * 1e6 * 1e-12, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "attention.pack"), 2 * 2 * 100 * 4e-10, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "attention.results"), 2 * 2 * 50 * 5e-10, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "attention"), 2 * 1e-3, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "combine.sum"), 2 * (2e6 * 33e-10 + 1e4 * 11e-10), 1e-12);
  EXPECT_NEAR(term_seconds(cost, "route.scores"), 2 * 1e-5, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "route.choices"), 2 * 2e-6, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "dispatch.plan"), 3e-6, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "attention.jobs"), 1e-4, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "attention.calls"), 2e-5, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "attention.groups"), 3e-6, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "node.messages"), 3e-6, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "link.messages"), 5e-5, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "node.bytes"), 1e-4, 1e-12);
  EXPECT_NEAR(term_seconds(cost, "link.bytes"), 2e-3, 1e-12);
  double sum = 0;
  for (const CostTerm& term : cost.terms) {
    EXPECT_TRUE(term.source.starts_with("machine.json: ")) << term.name;
    sum += term.seconds;
  }
  EXPECT_DOUBLE_EQ(cost.seconds(), sum);
  PhaseTimes phases = cost.phases();
  EXPECT_DOUBLE_EQ(phases[Phase::experts],
                   term_seconds(cost, "experts.int8") + term_seconds(cost, "experts.pack") +
                       term_seconds(cost, "experts.results") + term_seconds(cost, "experts.gates"));
  EXPECT_EQ(cost.bound(), "combine.sum");
  // More threads than cores share these.
  const StepCost crowded =
      step_cost(work, {.ranks = 4, .ranks_per_node = 4, .threads = 2}, test_machine());
  EXPECT_NEAR(term_seconds(crowded, "attention"), 4 * 1e-3, 1e-12);
  // Half as wide heads; weights that a cache holds.
  StepWork small = work;
  small.head_dim = 64;
  small.held_bytes = 1e5;
  const StepCost near = step_cost(small, ranks, test_machine());
  EXPECT_NEAR(term_seconds(near, "attention"), 2 * 2e-3, 1e-12);
  EXPECT_NEAR(term_seconds(near, "attention.bf16"), 2 * 2 * 1e6 * 0.25e-12, 1e-12);
  EXPECT_NEAR(term_seconds(near, "experts.int8"),
              2 * 10 * (3e6 * (2.5e-12 - 0.5e-12) + 4000 * 1e-9), 1e-12);
}

TEST(StepCost, a_step_of_training_goes_back_too) {
  const CostStep pass{.rows = 10};
  const StepWork forward{.products = {{Phase::experts, {Format::int8, 3e6, 3e6}, 40, 10},
                                      {Phase::head, {Format::bf16, 1e6, 2e6}, 10, 1}},
                         .rows = {{Phase::attention, RowOp::norm, 1e6, 2}},
                         .attention_flops = 1e9,
                         .held_bytes = 1e9,
                         .jobs = {100},
                         .link_messages = 5,
                         .link_bytes = 4e6,
                         .rows_max_over_mean = 1.5};
  const CostTraining training{
      .passes = 3, .row_factors = 1000, .choice_factors = 200, .values = 5e5, .sum_bytes = 2e6};
  const StepWork step = training_work(forward, pass, training);
  EXPECT_DOUBLE_EQ(step.flops(), 3 * 2 * forward.flops());
  EXPECT_DOUBLE_EQ(step.attention_flops, 3 * 3.5e9);
  EXPECT_DOUBLE_EQ(step.link_bytes, 3 * 2 * 4e6);
  EXPECT_DOUBLE_EQ(step.row_bytes(), 3 * 3 * forward.row_bytes());
  EXPECT_DOUBLE_EQ(step.jobs.front(), 3 * 3 * 100);
  EXPECT_DOUBLE_EQ(step.adapter_flops, 3 * 10 * 6 * (1000 + 1.5 * 200));
  CostTraining again = training;
  again.recomputes = true;
  const StepWork recomputed = training_work(forward, pass, again);
  const double head = 2 * 10 * 1e6;
  EXPECT_DOUBLE_EQ(recomputed.flops(), 3 * (3 * forward.flops() - head));
  EXPECT_DOUBLE_EQ(recomputed.link_messages, 3 * 3 * 5);

  const CostRanks ranks{.ranks = 4, .ranks_per_node = 2, .threads = 2};
  const StepCost cost = step_cost(step, ranks, test_machine());
  EXPECT_DOUBLE_EQ(term_seconds(cost, "experts.int8"), term_seconds(cost, "experts.int8.back"));
  EXPECT_NEAR(term_seconds(cost, "adapters"), 2 * step.adapter_flops * 4e-12 / (2 * 64), 1e-15);
  EXPECT_NEAR(term_seconds(cost, "optimizer"), 2 * 5e5 * 34 / (12 / 9e-10), 1e-12);
  EXPECT_NEAR(term_seconds(cost, "sums"), 2 * 2e6 / 2e9, 1e-12);
  EXPECT_LT(cost.phases()[Phase::experts], cost.seconds());
}

TEST(StepCost, links_are_hidden_behind_the_work_of_long_passes) {
  const CostRanks ranks{.ranks = 4, .ranks_per_node = 2};
  const auto estimate = [&](double rows) {
    return estimate_step(test_model(4), ranks, {.rows = rows}, ExpertPopularity::even()).work;
  };
  EXPECT_FALSE(estimate(63).hides_links);
  EXPECT_TRUE(estimate(64).hides_links);
  StepWork work{.link_messages = 5, .link_bytes = 4e6};
  work.head_dim = 128;
  work.attention_flops = 4e9;
  const double compute = step_cost(work, {}, test_machine()).seconds();
  const StepCost open = step_cost(work, ranks, test_machine());
  EXPECT_EQ(term_seconds(open, "link.hidden"), -1);  // there is none
  const double transfer = open.seconds() - compute;
  ASSERT_GT(compute, 0);
  ASSERT_GT(transfer, 0);
  work.hides_links = true;
  const StepCost hidden = step_cost(work, ranks, test_machine());
  const double both = std::cbrt(std::pow(compute, 3) + std::pow(transfer, 3));
  EXPECT_NEAR(hidden.seconds(), both, 1e-9);
  EXPECT_NEAR(term_seconds(hidden, "link.hidden"), both - compute - transfer, 1e-9);
  const OverlapShares alike = overlap_shares(1, 1);
  EXPECT_NEAR(alike.compute + alike.transfer, 1.26, 1e-3);
  EXPECT_EQ(overlap_shares(2, 0).compute, 1);
  EXPECT_EQ(overlap_shares(0, 2).transfer, 1);
  EXPECT_EQ(overlap_shares(0, 0).compute, 1);
}

TEST(StepCost, what_was_not_measured_is_refused) {
  MachineRates machine = test_machine();
  machine.between.reset();
  const StepWork sends{.link_messages = 1, .link_bytes = 1};
  const std::string text =
      error_message([&] { (void)step_cost(sends, {.ranks = 2, .ranks_per_node = 1}, machine); },
                    ErrorKind::usage);
  EXPECT_NE(text.find("machine.json: rows between nodes were not measured"), std::string::npos)
      << text;
  const StepWork other{.products = {{Phase::mlp, {Format::mxfp8, 1, 1}}}};
  EXPECT_EQ(error_message([&] { (void)step_cost(other, {}, machine); }, ErrorKind::usage),
            "machine.json: mxfp8 was not measured");
  EXPECT_THROW((void)estimate_step(test_model(1), {.ranks = 200}, {}, ExpertPopularity::even()),
               Error);
}

}  // namespace
}  // namespace moesaic
