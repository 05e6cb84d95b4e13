// moesaic plan --routing model: how popular experts are, asked of the model itself.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

const std::string kText = kData + "/demo-heldout.txt";

Json plan_demo(const Arguments& more) {
  const ProgramResult result = run_moesaic(
      joined({"plan", "-m", kDemo, "--ranks", "4", "--ranks-per-node", "2", "--json"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return Json::parse(result.out, "plan");
}

TEST(PlanRouting, Of_the_model_is_what_a_run_records_of_the_same_text) {
  const TemporaryDirectory directory;
  const std::string record = directory.path_of("record.json");
  const ProgramResult score =
      run_moesaic({"score", "-m", kDemo, "-f", kText, "-c", "1024", "--record-load", record});
  ASSERT_EQ(score.exit_code, 0) << score.text();
  const Json asked = plan_demo({"--routing", "model", "--text", kText});
  const Json recorded = plan_demo({"--routing", record});
  for (const std::string field : {"rows", "results", "dispatch_bytes", "combine_bytes"}) {
    const double expected = recorded.at("traffic").at(field).as_double();
    EXPECT_NEAR(asked.at("traffic").at(field).as_double(), expected, 0.01 * expected) << field;
  }
  const double exchange = recorded.at("items").at("exchange").as_double();
  EXPECT_NEAR(asked.at("items").at("exchange").as_double(), exchange, 0.03 * exchange);
  const double even = plan_demo({"--routing", "even"}).at("items").at("exchange").as_double();
  EXPECT_GT(exchange, 1.1 * even);  // so that it makes a difference
  const std::string source = asked.at("sources").at("routing").as_string();
  EXPECT_NE(source.find("tokens of " + kText), std::string::npos) << source;
}

TEST(PlanRouting, Takes_a_text_with_the_model_alone) {
  const std::string config = kDemo + "/config.json";
  const auto expect_refusal = [](const Arguments& arguments, int code, const std::string& words) {
    const ProgramResult result = run_moesaic(joined({"plan", "--ranks", "4"}, arguments));
    EXPECT_EQ(result.exit_code, code) << result.text();
    EXPECT_NE(result.err.find(words), std::string::npos) << result.text();
  };
  expect_refusal({"-m", kDemo, "--routing", "model"}, 2, "--text FILE says which");
  expect_refusal({"-m", kDemo, "--routing", "even", "--text", kText}, 2, "is for --routing model");
  expect_refusal({"-m", config, "--routing", "model", "--text", kText}, 2, "has no weights here");
  expect_refusal({"--shape", "qwen3-30b", "--routing", "model"}, 2, "a layer without a model");
  expect_refusal({"-m", kDemo, "--routing", "model", "--text", kText + ".none"}, 3,
                 "demo-heldout.txt.none");
}

}  // namespace
}  // namespace moesaic::test
