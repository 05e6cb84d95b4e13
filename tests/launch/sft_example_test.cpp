// The fine-tuning that README.md and docs/training.md show, and what they say of it.

#include <gtest/gtest.h>

#include "tests/launch/sft_program.h"

namespace moesaic::test {
namespace {

TEST(SftExample, TheHeldOutLossFallsAsDocumentedAndTextsGoOnInAnotherWay) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_ranks(4, {"sft", "--config", kData + "/../../configs/sft.ini", "-m", kDemo,
                            "--data", kConversations, "-o", out}));
  const std::vector<Json> evals = events(out, "eval");
  ASSERT_FALSE(evals.empty());
  EXPECT_EQ(evals.front().at("step").as_int(), 0);
  EXPECT_NEAR(evals.front().at("loss").as_double(), 5.18, 0.01);
  EXPECT_NEAR(evals.back().at("loss").as_double(), 3.26, 0.03) << "on any CPU";
  EXPECT_EQ(events(out, "end").back().at("reason").as_string(), "done");

  const auto answer = [&](const Arguments& more) {
    const ProgramResult result = run_moesaic(
        joined({"generate", "-m", kDemo, "--chat", "-p", "And the earth was without form,", "-n",
                "16", "--temp", "0", "--log-level", "warning"},
               more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return result.out;
  };
  const std::string tuned = answer({"--lora", out});
  EXPECT_FALSE(tuned.empty());
  EXPECT_NE(tuned, answer({}));
}

}  // namespace
}  // namespace moesaic::test
