#include "src/moe/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace moesaic {
namespace {

struct Chosen {
  std::vector<int> experts;
  std::vector<float> weights;
};

Chosen choose(std::vector<float> logits, const RouterOptions& options) {
  std::vector<ExpertId> experts(static_cast<std::size_t>(options.topk));
  std::vector<float> weights(experts.size());
  choose_experts(logits, options, find_vector_kernels(Isa::scalar), experts, weights);
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
  EXPECT_EQ(choose({5, 1, 5, 5}, {.topk = 2, .softmax_over_all = false}).experts,
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
  const Chosen over_chosen = choose(logits, {.topk = 3, .softmax_over_all = false});
  const Chosen normalised = choose(logits, {.topk = 3, .normalize = true});
  EXPECT_EQ(over_chosen.experts, normalised.experts);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(over_chosen.weights[i], normalised.weights[i], 1e-6);
  }
}

TEST(Router, always_chooses_different_experts) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(choose({kNan, kNan, kNan}, {.topk = 2}).experts, (std::vector{0, 1}));
  EXPECT_EQ(choose({kNan, 1, kNan}, {.topk = 2, .softmax_over_all = false}).experts,
            (std::vector{0, 1}));
  EXPECT_EQ(choose({kNan, kNan, 1, 2}, {.topk = 2, .softmax_over_all = false}).experts,
            (std::vector{2, 3}))
      << "what is no number is smaller than everything";
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
