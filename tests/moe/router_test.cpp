#include "src/moe/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kernels/whole_product.h"

namespace moesaic {
namespace {

struct Chosen {
  std::vector<int> experts;
  std::vector<float> weights;
};

Chosen choose(std::vector<float> logits, const RouterOptions& options,
              const std::vector<float>& bias = {}, const std::vector<ExpertId>& given = {}) {
  std::vector<ExpertId> experts(static_cast<std::size_t>(options.topk));
  std::vector<float> weights(experts.size());
  choose_experts({.scores = logits,
                  .choice_bias = bias,
                  .given = given,
                  .experts = experts,
                  .weights = weights},
                 options, find_vector_kernels(Isa::scalar));
  Chosen result{.experts = {}, .weights = weights};
  for (const ExpertId expert : experts) result.experts.push_back(static_cast<int>(expert));
  return result;
}

TEST(Router, takes_the_largest_in_ascending_id) {
  const Chosen chosen = choose({0.0F, 3.0F, 1.0F, 2.0F}, {.topk = 2});
  EXPECT_EQ(chosen.experts, (std::vector{1, 3}));
  const double sum = 1 + std::exp(3.0) + std::exp(1.0) + std::exp(2.0);
  EXPECT_NEAR(chosen.weights[0], std::exp(3.0) / sum, 1e-6);
  EXPECT_NEAR(chosen.weights[1], std::exp(2.0) / sum, 1e-6);
}

TEST(Router, ties_go_to_the_lower_id) {
  EXPECT_EQ(choose({1, 2, 2, 2, 1}, {.topk = 2}).experts, (std::vector{1, 2}));
  EXPECT_EQ(choose({0, 0, 0, 0}, {.topk = 3}).experts, (std::vector{0, 1, 2}));
  EXPECT_EQ(choose({5, 1, 5, 5}, {.topk = 2, .scores = ExpertScores::logits}).experts,
            (std::vector{0, 2}));
}

TEST(Router, takes_the_largest_wherever_they_stand) {
  std::vector<float> logits = {1, 2, 3, 4, 5, 6};
  do {
    std::vector<int> expected;
    for (int e = 0; e < 6; ++e) {
      if (logits[static_cast<std::size_t>(e)] > 3) expected.push_back(e);
    }
    ASSERT_EQ(choose(logits, {.topk = 3}).experts, expected);
  } while (std::ranges::next_permutation(logits).found);
}

TEST(Router, normalised_weights_sum_to_one) {
  const Chosen chosen = choose({0.5F, -1, 2, 0.25F}, {.topk = 3, .normalize = true});
  EXPECT_NEAR(chosen.weights[0] + chosen.weights[1] + chosen.weights[2], 1, 1e-6);
}

TEST(Router, softmax_over_the_chosen_equals_normalised_softmax_over_all) {
  const std::vector<float> logits = {0.5F, -1, 2, 0.25F, 1.5F};
  const Chosen over_chosen = choose(logits, {.topk = 3, .scores = ExpertScores::logits});
  const Chosen normalised = choose(logits, {.topk = 3, .normalize = true});
  EXPECT_EQ(over_chosen.experts, normalised.experts);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(over_chosen.weights[i], normalised.weights[i], 1e-6);
  }
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(Router, sigmoids_are_weights_of_their_own) {
  const RouterOptions options{.topk = 2, .scores = ExpertScores::sigmoid, .scale = 2.5F};
  const Chosen chosen = choose({-1, 0.5F, 2, -3}, options);
  EXPECT_EQ(chosen.experts, (std::vector{1, 2}));
  EXPECT_NEAR(chosen.weights[0], 2.5 * sigmoid(0.5), 1e-6);
  EXPECT_NEAR(chosen.weights[1], 2.5 * sigmoid(2), 1e-6);
}

TEST(Router, a_bias_chooses_but_weighs_nothing) {
  const RouterOptions options{
      .topk = 2, .scores = ExpertScores::sigmoid, .normalize = true, .scale = 3};
  const std::vector<float> logits = {-1, 0.5F, 2, -3};
  const Chosen chosen = choose(logits, options, {0.4F, 0, 0, 1});
  EXPECT_EQ(chosen.experts, (std::vector{2, 3}));
  const double sum = sigmoid(2) + sigmoid(-3);
  EXPECT_NEAR(chosen.weights[0], 3 * sigmoid(2) / sum, 1e-6);
  EXPECT_NEAR(chosen.weights[1], 3 * sigmoid(-3) / sum, 1e-6);
  const Chosen given = choose(logits, options, {0.4F, 0, 0, 1}, {ExpertId{3}, ExpertId{2}});
  EXPECT_EQ(given.experts, chosen.experts);
  EXPECT_EQ(given.weights, chosen.weights);
}

TEST(Router, sums_may_be_made_larger) {
  RouterOptions options{.topk = 1, .normalize = true, .sum_offset = 1};
  EXPECT_NEAR(choose({0, 0}, options).weights[0], 0.5 / 1.5, 1e-6);
  options.sum_offset = 0;
  options.least_sum = 2;
  EXPECT_NEAR(choose({0, 0}, options).weights[0], 0.25, 1e-6);
}

TEST(Router, chooses_from_the_best_groups) {
  RouterOptions options{
      .topk = 3, .scores = ExpertScores::sigmoid, .num_groups = 3, .kept_groups = 2};
  // The largest of all stands in the group whose two largest count least.
  const std::vector<float> logits = {4, -9, -9, 1, 2, -9, 0.5F, 1.5F, 1.25F};
  EXPECT_EQ(choose(logits, options).experts, (std::vector{4, 7, 8}));
  options.group_score = GroupScore::largest;
  EXPECT_EQ(choose(logits, options).experts, (std::vector{0, 3, 4}));
  options.kept_groups = 1;
  EXPECT_EQ(choose({0, 0, 0, 0, 0, 0, 0, 0, 0}, options).experts, (std::vector{0, 1, 2}))
      << "ties go to the lower group";
}

TEST(Router, always_chooses_different_experts) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(choose({kNan, kNan, kNan}, {.topk = 2}).experts, (std::vector{0, 1}));
  EXPECT_EQ(choose({kNan, 1, kNan}, {.topk = 2, .scores = ExpertScores::logits}).experts,
            (std::vector{0, 1}));
  EXPECT_EQ(choose({kNan, kNan, kNan, kNan}, {.topk = 2, .num_groups = 2}).experts,
            (std::vector{0, 1}));
  EXPECT_EQ(choose({kNan, kNan, 1, 2}, {.topk = 2, .scores = ExpertScores::logits}).experts,
            (std::vector{2, 3}))
      << "what is no number is smaller than everything";
}

TEST(Router, adds_its_bias_to_scores) {
  ThreadPool pool(1);
  const Compute compute{
      .isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool};
  const std::vector<float> ones(3 * 2, 1.0F);
  const OwnedMatrix weights = pack_matrix({.format = Format::f32}, ones, 3, 2);
  const std::vector<float> bias = {0.5F, -1, 2};
  const Router router(weights.matrix, {.topk = 2, .scores = ExpertScores::logits}, compute,
                      {.logits = bias});
  GroupedGemm gemm(compute);
  RouterScratch scratch;
  Routing routing;
  const std::vector<float> x = {0.25F, 0.5F};
  router.route({x.data(), 1, 2}, gemm, scratch, routing);
  EXPECT_EQ(routing.experts, (std::vector{ExpertId{0}, ExpertId{2}}));
  const Chosen expected =
      choose({1.25F, -0.25F, 2.75F}, {.topk = 2, .scores = ExpertScores::logits});
  EXPECT_EQ(routing.weights, expected.weights);
  EXPECT_THROW(Router(weights.matrix, {.topk = 2}, compute, {.logits = std::span(bias).first(2)}),
               Error);
}

TEST(Router, statistics_leave_out_probabilities_that_are_no_numbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  ThreadPool pool(1);
  const Compute compute{
      .isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool};
  const Router router({.layout = {.format = Format::f32}, .rows = 2, .depth = 4}, {.topk = 1},
                      compute);
  const Routing routing{
      .num_tokens = 2, .topk = 1, .experts = {ExpertId{0}, ExpertId{1}}, .weights = {}};
  RouterScratch scratch;
  scratch.scores = Buffer<float>(4);
  std::ranges::copy(std::vector{kNan, kNan, 0.25F, 0.75F}, scratch.scores.data());
  RouterStatistics statistics;
  router.add_statistics(routing, scratch, statistics);
  EXPECT_EQ(statistics.chosen, (std::vector<std::int64_t>{1, 1}));
  const auto units = static_cast<std::int64_t>(1 / RouterStatistics::kUnit);
  EXPECT_EQ(statistics.probability, (std::vector<std::int64_t>{units / 4, units / 4 * 3}));
}

}  // namespace
}  // namespace moesaic
