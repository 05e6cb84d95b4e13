#include "src/train/batch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace moesaic {
namespace {

std::vector<std::int64_t> all_samples(const std::vector<RankBatches>& plan) {
  std::vector<std::int64_t> all;
  for (const RankBatches& rank : plan) {
    for (const auto& batch : rank.micro_batches) all.insert(all.end(), batch.begin(), batch.end());
  }
  std::ranges::sort(all);
  return all;
}

TEST(BatchPlan, EverySampleIsRunOnceOnAnyRanks) {
  const std::vector<std::int64_t> lengths = {5, 100, 7, 64, 64, 3, 1, 40, 12};
  for (const int ranks : {1, 2, 3, 4, 16}) {
    const auto plan = plan_batches(lengths, ranks, 64);
    EXPECT_EQ(all_samples(plan), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(std::ssize(plan), ranks);
    for (const RankBatches& rank : plan) {
      EXPECT_EQ(rank.micro_batches.size(), plan[0].micro_batches.size());
      for (const auto& batch : rank.micro_batches) {
        std::int64_t tokens = 0;
        for (const std::int64_t sample : batch) tokens += lengths[static_cast<std::size_t>(sample)];
        EXPECT_TRUE(tokens <= 64 || batch.size() == 1);
      }
    }
  }
}

TEST(BatchPlan, RanksGetAboutAsManyTokens) {
  const std::vector<std::int64_t> lengths(12, 10);
  const auto plan = plan_batches(lengths, 4, 1000);
  for (const RankBatches& rank : plan) EXPECT_EQ(rank.micro_batches.at(0).size(), 3U);
}

TEST(BatchPlan, RanksWithoutSamplesHaveEmptyMicroBatches) {
  const auto plan = plan_batches(std::vector<std::int64_t>{8, 8}, 3, 8);
  EXPECT_EQ(plan[2].micro_batches.size(), 1U);
  EXPECT_TRUE(plan[2].micro_batches[0].empty());
}

}  // namespace
}  // namespace moesaic
