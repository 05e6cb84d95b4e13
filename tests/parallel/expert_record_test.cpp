#include "src/parallel/expert_record.h"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;

constexpr int kRanks = 2;
/// Layer 0 of three has no experts.
const ModelExperts kModel{.layers = 3, .with = {1, 2}, .experts = 4, .experts_per_token = 2};

std::vector<int> owners(const ExpertPlacement& placement) {
  std::vector<int> ranks;
  for (int expert = 0; expert < placement.num_experts(); ++expert) {
    ranks.push_back(placement.rank_of(ExpertId{expert}));
  }
  return ranks;
}

TEST(ExpertRecord, WhatIsWrittenIsReadAndPlacesEachLayerByItsOwnRows) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("load.json");
  const ExpertRows rows = {{9, 1, 8, 2}, {1, 1, 1, 9}};
  test::write_text(path, expert_record_json(rows, 2));
  const ExpertRecord record = read_expert_record(path);
  EXPECT_EQ(record.experts_per_token, 2);
  EXPECT_EQ(record.rows, (std::vector<std::vector<double>>{{9, 1, 8, 2}, {1, 1, 1, 9}}));
  const ModelPlacement placement = place_by_record(record, kModel, kRanks);
  EXPECT_EQ(owners(placement.of_layer(0)), (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(owners(placement.of_layer(1)), (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(owners(placement.of_layer(2)), (std::vector{1, 1, 0, 0}));
}

TEST(ExpertRecord, TheBusiestRankOfEachLayerCounts) {
  const ExpertRows rows = {{9, 1, 8, 2}, {1, 1, 1, 9}};
  const ModelPlacement contiguous(ExpertPlacement(4, kRanks));
  const ModelPlacement dealt(ExpertPlacement::round_robin(4, kRanks));
  EXPECT_DOUBLE_EQ(busiest_share(rows, kModel.with, contiguous), (10.0 + 10) / (10 + 6));
  EXPECT_DOUBLE_EQ(busiest_share(rows, kModel.with, dealt), (17.0 + 10) / (10 + 6));
  EXPECT_DOUBLE_EQ(busiest_share({{0, 0, 0, 0}}, kModel.with, dealt), 1);
}

std::string refusal(const std::vector<std::vector<double>>& rows, std::int64_t topk = 2) {
  return error_message([&] {
    (void)place_by_record({.experts_per_token = topk, .rows = rows, .path = "load.json"}, kModel,
                          kRanks);
  });
}

TEST(ExpertRecord, OfAnotherModelIsRefusedWithLayerAndExpert) {
  EXPECT_EQ(refusal({{1, 1, 1, 1}}),
            "load.json: no rows of layer 2: it has 1 layers, the model has experts in 2");
  EXPECT_EQ(refusal({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}),
            "load.json: rows of 3 layers, but the model has experts in 2; the last is layer 2");
  EXPECT_EQ(refusal({{1, 1, 1, 1}, {1, 1, 1}}),
            "load.json: layer 2 has no rows of expert 3: it has 3 experts, the model 4");
  EXPECT_EQ(refusal({{1, 1, 1, 1, 1}, {1, 1, 1, 1}}),
            "load.json: layer 1 has rows of expert 4, but the model has 4 experts");
  EXPECT_EQ(refusal({{1, 1, 1, 1}, {1, 1, -2, 1}}),
            "load.json: layer 2, expert 2: -2 is no number of rows");
  EXPECT_EQ(refusal({{1, 1, 1, 1}, {1, 1, 1, 1}}, 3),
            "load.json: experts_per_token is 3, the model chooses 2");
}

}  // namespace
}  // namespace moesaic
