// moesaic plan --routing model: how popular experts are, asked of the model itself.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/sparse_model.h"
#include "tests/parallel/test_machine.h"

namespace moesaic::test {
namespace {

const std::string kText = kData + "/demo-heldout.txt";

Json plan_of(const std::string& model, const Arguments& more) {
  const ProgramResult result = run_moesaic(
      joined({"plan", "-m", model, "--ranks", "4", "--ranks-per-node", "2", "--json"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return Json::parse(result.out, "plan");
}

Json plan_demo(const Arguments& more) {
  return plan_of(kDemo, more);
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

TEST(PlanRouting, Of_generation_is_that_of_tokens_that_are_apart) {
  const TemporaryDirectory directory;
  const std::string machine = directory.path_of("machine.json");
  write_text(machine, test_machine().text());
  const std::string model = directory.path_of("model");
  write_sparse_model(model, {.computes = true});
  const auto generation_rate = [&](const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) {
      for (int i = 0; i < 800 / std::ssize(words); ++i) text += word;
    }
    const std::string file = directory.path_of("text.txt");
    write_text(file, text);
    return plan_of(model, {"--routing", "model", "--text", file, "--machine", machine, "--ranks",
                           "1", "--parallel", "4"})
        .at("time")
        .at("generation_tokens_per_second")
        .as_double();
  };
  // Neighbours are alike, and choose the same experts, but the four texts are at different words.
  const double alike = generation_rate({" and"});
  EXPECT_LT(generation_rate({" and", " king", " seven", " went"}), 0.95 * alike);
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
