#include "src/generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "kernels/kernel_table.h"

namespace moesaic {
namespace {

Sampler make_sampler(const SamplingOptions& options, std::uint64_t stream = 0) {
  return {options, stream, find_vector_kernels(Isa::scalar)};
}

std::map<std::int32_t, int> draw(const SamplingOptions& options, const std::vector<float>& logits,
                                 int times) {
  Sampler sampler = make_sampler(options);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler.sample(logits)];
  return counts;
}

TEST(Sampler, temperature_zero_takes_the_largest_and_the_lowest_id_of_equals) {
  Sampler sampler = make_sampler({.temperature = 0});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-INFINITY, -5}), 1);
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
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(first_draws(1, 2), first_draws(1, 2));
  EXPECT_NE(first_draws(1, 2), first_draws(1, 3));
  EXPECT_NE(first_draws(1, 2), first_draws(2, 2));
}

TEST(Sampler, refuses_options_out_of_range) {
  EXPECT_THROW(make_sampler({.temperature = -1}), Error);
  EXPECT_THROW(make_sampler({.temperature = std::numeric_limits<double>::infinity()}), Error);
  EXPECT_THROW(make_sampler({.top_k = -1}), Error);
  EXPECT_THROW(make_sampler({.top_p = 0}), Error);
  EXPECT_THROW(make_sampler({.top_p = 1.5}), Error);
}

TEST(Sampler, refuses_logits_without_a_finite_number) {
  Sampler sampler = make_sampler({});
  EXPECT_THROW((void)sampler.sample(std::vector<float>{NAN, NAN}), Error);
  EXPECT_THROW((void)sampler.sample(std::vector<float>{1, INFINITY}), Error);
  EXPECT_EQ(sampler.sample(std::vector<float>{NAN, 1}), 1);
}

}  // namespace
}  // namespace moesaic
