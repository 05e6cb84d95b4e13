// moesaic plan --job sft: that it plans what moesaic sft would do.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/parallel/test_machine.h"

namespace moesaic::test {
namespace {

class PlannedTraining : public ::testing::Test {
 protected:
  PlannedTraining() { write_text(machine_, test_machine().text()); }

  [[nodiscard]] ProgramResult run(const Arguments& more) const {
    return run_moesaic(joined(
        {"plan", "-m", kDemo, "--job", "sft", "-c", "2048", "-b", "4096", "--machine", machine_},
        more));
  }
  [[nodiscard]] Json plan(const Arguments& more) const {
    const ProgramResult result = run(joined({"--json"}, more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return Json::parse(result.out, "output");
  }

  TemporaryDirectory directory_;
  std::string machine_ = directory_.path_of("machine.json");
};

/// Without what differs from one process to the next.
std::int64_t activation_bytes(const Json& planned) {
  return planned.at("items").at("activation").as_int();
}

double tokens_per_second(const Json& planned) {
  return planned.at("time").at("prompt_tokens_per_second").as_double();
}

TEST_F(PlannedTraining, that_does_not_fit_is_what_it_falls_back_to) {
  const Json never = plan({"--recompute", "never", "--memory", "8G"});
  const Json always = plan({"--recompute", "always", "--memory", "8G"});
  const std::int64_t most = never.at("per_node_bytes").as_int();
  const std::int64_t least = always.at("per_node_bytes").as_int();
  ASSERT_GT(most, least + (std::int64_t{8} << 20));
  // With memory enough it keeps what layers compute, with less it does not.
  const Json wide = plan({"--memory", "8G"});
  EXPECT_EQ(activation_bytes(wide), activation_bytes(never));
  EXPECT_EQ(tokens_per_second(wide), tokens_per_second(never));
  EXPECT_FALSE(wide.at("recompute").as_bool());
  const std::string between = fmt::format("{}", (most + least) / 2);
  EXPECT_EQ(run({"--recompute", "never", "--memory", between}).exit_code, 4);
  const Json narrow = plan({"--memory", between});
  EXPECT_EQ(activation_bytes(narrow), activation_bytes(always));
  EXPECT_EQ(tokens_per_second(narrow), tokens_per_second(always));
  EXPECT_LT(tokens_per_second(narrow), tokens_per_second(wide));
  EXPECT_TRUE(narrow.at("recompute").as_bool());
  EXPECT_NE(narrow.at("sources").at("recompute").as_string().find("--recompute auto"),
            std::string::npos);
  EXPECT_GE(narrow.at("largest").at("batch_size").as_int(), 4096);
  EXPECT_EQ(narrow.at("fewest_nodes").as_int(), 1);
  const ProgramResult text = run({"--memory", between});
  EXPECT_NE(text.out.find("recompute layers run again before their backward pass: a node needs "),
            std::string::npos)
      << text.text();
}

}  // namespace
}  // namespace moesaic::test
