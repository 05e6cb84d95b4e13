#include "src/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "kernels/kernel_table.h"
#include "tests/generate/sampling_case.h"

namespace moesaic {
namespace {

Sampler make_sampler(const SamplingOptions& options, std::uint64_t stream = 0) {
  return {options, stream, find_vector_kernels(Isa::scalar)};
}

std::map<std::int32_t, int> draw(const SamplingOptions& options, const std::vector<float>& logits,
                                 int times) {
  Sampler sampler = make_sampler(options);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler.sample(logits, {}).value()];
  return counts;
}

TEST(Sampler, temperature_zero_takes_the_largest_and_the_lowest_id_of_equals) {
  Sampler sampler = make_sampler({.temperature = 0});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}, {}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-INFINITY, -5}, {}), 1);
}

TEST(Sampler, draws_follow_the_softmax) {
  const std::vector<float> logits = {0, 1, 2, -1};
  const auto counts = draw({.temperature = 1, .top_k = 0, .top_p = 1, .seed = 3}, logits, 40000);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit);
  for (std::int32_t id = 0; id < 4; ++id) {
    EXPECT_NEAR(counts.at(id) / 40000.0, std::exp(logits[static_cast<std::size_t>(id)]) / sum,
                0.01);
  }
}

TEST(Sampler, temperature_sharpens) {
  const auto counts = draw({.temperature = 0.5, .top_k = 0, .top_p = 1}, {0, 1}, 40000);
  EXPECT_NEAR(counts.at(1) / 40000.0, 1 / (1 + std::exp(-2.0)), 0.01);
}

TEST(Sampler, top_k_keeps_k) {
  const auto counts = draw({.temperature = 5, .top_k = 2, .top_p = 1}, {0, 1, 0.5F, 0.9F}, 1000);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_TRUE(counts.contains(1) && counts.contains(3));
}

TEST(Sampler, top_p_keeps_the_shortest_head_that_reaches_p) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(4.0F), std::log(2.0F), 0, 0};
  const auto kept = [&](double top_p) {
    return draw({.temperature = 1, .top_k = 0, .top_p = top_p}, logits, 2000).size();
  };
  EXPECT_EQ(kept(0.4), 1U);
  EXPECT_EQ(kept(0.6), 2U);
  EXPECT_EQ(kept(0.8), 3U);
  EXPECT_EQ(kept(1.0), 4U);
}

TEST(Sampler, seeds_and_streams_tell_sequences_apart) {
  const std::vector<float> logits(100, 0.0F);
  const auto first_draws = [&](std::uint64_t seed, std::uint64_t stream) {
    Sampler sampler =
        make_sampler({.temperature = 1, .top_k = 0, .top_p = 1, .seed = seed}, stream);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.sample(logits, {}).value());
    return ids;
  };
  EXPECT_EQ(first_draws(1, 2), first_draws(1, 2));
  EXPECT_NE(first_draws(1, 2), first_draws(1, 3));
  EXPECT_NE(first_draws(1, 2), first_draws(2, 2));
}

TEST(Sampler, min_p_keeps_what_is_likely_beside_the_likeliest) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(4.0F), std::log(2.0F), 0, 0};
  const auto kept = [&](double min_p, double top_p) {
    return draw({.temperature = 1, .top_k = 0, .top_p = top_p, .min_p = min_p}, logits, 2000)
        .size();
  };
  EXPECT_EQ(kept(0.2, 1), 4U);
  EXPECT_EQ(kept(0.3, 1), 2U);
  EXPECT_EQ(kept(0.6, 1), 1U);
  EXPECT_EQ(kept(1, 1), 1U);
  EXPECT_EQ(kept(0.3, 0.66), 1U) << "top-p is of what min-p leaves: 2/3 and 1/3";
}

TEST(Sampler, min_p_keeps_equals_and_drops_what_is_just_less_likely) {
  const auto kept = [](const std::vector<float>& logits, double min_p, double top_p) {
    return draw({.temperature = 1, .top_k = 0, .top_p = top_p, .min_p = min_p}, logits, 2000)
        .size();
  };
  EXPECT_EQ(kept({1, 0, 1}, 1, 1), 2U);
  // 4 : 2.002 : 1.998, so that the last one is less than half as likely as the first.
  const std::vector<float> near = {std::log(4.0F), std::log(2.002F), std::log(1.998F)};
  EXPECT_EQ(kept(near, 0.5, 1), 2U);
  EXPECT_EQ(kept(near, 0.5, 0.6), 1U) << "top-p is of the two that are left: 0.666 and 0.334";
}

/// The token that `random` falls on among the whole vocabulary, sorted.
std::int32_t plain_draw(const std::vector<float>& logits, double top_p, double random) {
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, std::greater{}, [&](std::size_t id) { return logits[id]; });
  std::vector<double> shares;
  for (const std::size_t id : ids) shares.push_back(std::exp(logits[id] - logits[ids[0]]));
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::size_t count = 0;
  double kept = 0;
  while (count < ids.size() && kept < top_p * total) kept += shares[count++];
  std::size_t drawn = 0;
  for (double sum = shares[0]; drawn + 1 < count && random * kept >= sum;) sum += shares[++drawn];
  return static_cast<std::int32_t>(ids[drawn]);
}

TEST(Sampler, a_whole_vocabulary_gives_what_it_gives_sorted) {
  std::mt19937_64 numbers(5);
  for (const float spread : {0.2F, 3.0F, 9.0F}) {  // flat: deep in the list; steep: at its head
    std::vector<float> logits(5000);
    for (float& logit : logits) {
      logit = spread * static_cast<float>(static_cast<double>(numbers() >> 11) * 0x1p-53);
    }
    for (const double top_p : {1.0, 0.9, 0.2}) {
      Sampler sampler = make_sampler({.temperature = 1, .top_k = 0, .top_p = top_p, .seed = 7});
      std::seed_seq seeds{7, 0, 0, 0};
      std::mt19937_64 same(seeds);
      int equal = 0;
      for (int i = 0; i < 60; ++i) {
        const double random = static_cast<double>(same() >> 11) * 0x1p-53;
        if (sampler.sample(logits, {}) == plain_draw(logits, top_p, random)) ++equal;
      }
      EXPECT_GE(equal, 59) << spread << " " << top_p;  // f32 beside f64: neighbours at a border
    }
  }
}

TEST(Sampler, top_k_has_two_ways_to_say_no_limit) {
  const std::vector<float> logits = {0, 1, 0.5F, 0.9F};
  const auto all = draw({.temperature = 5, .top_k = 0, .top_p = 1}, logits, 1000);
  EXPECT_EQ(all.size(), 4U);
  EXPECT_EQ(draw({.temperature = 5, .top_k = -1, .top_p = 1}, logits, 1000), all);
}

TEST(Sampler, min_p_keeps_tokens_at_its_border) {
  // All as likely as min-p asks for, or a little more or less; the vocabulary is large.
  std::vector<float> logits(5000, -30);
  logits[7] = 3;
  const float border = 3 + 2 * std::log(0.25F);
  logits[100] = border + 1e-3F;
  logits[4000] = border - 1e-3F;
  const auto counts = draw({.temperature = 2, .top_k = 0, .top_p = 1, .min_p = 0.25}, logits, 2000);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_TRUE(counts.contains(7) && counts.contains(100));
}

TEST(Sampler, temperatures_near_zero_are_greedy) {
  const std::vector<float> logits = {1, 1.0001F, 0.5F};
  const auto counts = draw({.temperature = 1e-45, .top_k = 0, .top_p = 1}, logits, 100);
  EXPECT_EQ(counts.at(1), 100);
}

TEST(Sampler, a_bias_can_forbid_and_force) {
  const std::vector<float> logits = {0, 1, 2, -1};
  const float never = -std::numeric_limits<float>::infinity();
  const auto forbidden =
      draw({.temperature = 1, .top_k = 0, .top_p = 1, .logit_bias = {{2, never}, {1, never}}},
           logits, 500);
  EXPECT_EQ(forbidden.size(), 2U);
  EXPECT_FALSE(forbidden.contains(1) || forbidden.contains(2));
  EXPECT_EQ(draw({.temperature = 0, .logit_bias = {{3, 4}}}, logits, 1).at(3), 1);
  EXPECT_THROW(draw({.logit_bias = {{0, never}, {1, never}, {2, never}, {3, never}}}, logits, 1),
               Error);
}

TEST(Sampler, the_chain_leaves_what_transformers_leaves) {
  const Json cases = Json::read_file(MOESAIC_TEST_DATA "/sampling.json");
  for (std::int64_t number = 0; number < cases.size(); ++number) {
    const SamplingCase golden = read_sampling_case(cases.at(number));
    Sampler sampler = make_sampler(golden.options);
    std::map<std::int32_t, int> counts;
    constexpr int kTimes = 20000;
    for (int i = 0; i < kTimes; ++i) ++counts[sampler.sample(golden.logits, golden.text()).value()];
    for (std::size_t id = 0; id < golden.probabilities.size(); ++id) {
      const double expected = golden.probabilities[id];
      const double share = counts[static_cast<std::int32_t>(id)] / static_cast<double>(kTimes);
      EXPECT_NEAR(share, expected, expected == 0 ? 0 : 0.02)
          << "case " << number << " token " << id;
    }
  }
}

TEST(SamplingOptions, out_of_range_are_refused) {
  EXPECT_NO_THROW(check_sampling({}, 10));
  EXPECT_NO_THROW(check_sampling({.repetition_penalty = 1e-6}, 10));
  EXPECT_THROW(check_sampling({.repetition_penalty = 1e-39}, 10), Error);  // logits by it: infinite
  const auto refused = [](const SamplingOptions& options) {
    EXPECT_THROW(check_sampling(options, 10), Error);
  };
  refused({.temperature = -1});
  refused({.temperature = std::numeric_limits<double>::infinity()});
  refused({.top_k = -2});
  refused({.top_p = 0});
  refused({.top_p = 1.5});
  refused({.min_p = -0.1});
  refused({.min_p = 1.1});
  refused({.min_p = NAN});
  refused({.repetition_penalty = 0});
  refused({.repetition_penalty = NAN});
  refused({.frequency_penalty = std::numeric_limits<double>::infinity()});
  refused({.presence_penalty = -1000});
  refused({.penalty_last_n = -2});
  refused({.logit_bias = {{10, 1}}});
  refused({.logit_bias = {{-1, 1}}});
  refused({.logit_bias = {{1, NAN}}});
  refused({.logit_bias = {{1, std::numeric_limits<float>::infinity()}}});
}

TEST(Sampler, refuses_logits_that_are_no_numbers) {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0}, SamplingOptions{.top_k = 0, .min_p = 0},
        SamplingOptions{.top_k = 2}, SamplingOptions{.top_k = 0, .min_p = 0.1}}) {
    Sampler sampler = make_sampler(options);
    EXPECT_FALSE(sampler.sample(std::vector<float>{NAN, NAN}, {}));
    EXPECT_FALSE(sampler.sample(std::vector<float>{1, INFINITY}, {}));
    EXPECT_FALSE(sampler.sample(std::vector<float>{NAN, 1}, {}));
    EXPECT_FALSE(sampler.sample(std::vector<float>{1, 0, NAN}, {}));
    EXPECT_TRUE(sampler.sample(std::vector<float>{-INFINITY, 1}, {}));
  }
}

}  // namespace
}  // namespace moesaic
