// What the verb bench model is made of.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "launch/bench/bench_table.h"
#include "launch/bench/model_feed.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;

TEST(BenchTable, MeanAndDeviationOfASample) {
  const MeanDeviation result = mean_deviation({2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_DOUBLE_EQ(result.mean, 5);
  EXPECT_NEAR(result.deviation, 2.13809, 1e-5);
  EXPECT_EQ(mean_deviation({3}).deviation, 0);
}

std::vector<BenchTest> small_tests() {
  return {{.n_prompt = 4, .batch = 4, .tokens = 8, .seconds = {1.0, 3.0}, .flops = 50, .bytes = 0},
          {.n_gen = 2, .threads = 3, .tokens = 4, .seconds = {2.0, 2.0}, .flops = 20, .bytes = 60}};
}

std::string bench_report(const std::vector<BenchTest>& tests, ResultForm form) {
  BenchTable table(form, {.file = "dir", .type = "a \"type\"", .isa = "avx2", .ranks = 2});
  std::string text;
  for (const BenchTest& test : tests) {
    text += table.add(test, {.flops_per_second = 100, .bytes_per_second = 50});
  }
  return text + table.end();
}

TEST(BenchTable, JsonHasTheKeysOfLlamaBench) {
  const Json json = Json::parse(bench_report(small_tests(), ResultForm::json), "report");
  ASSERT_EQ(json.size(), 2);
  const Json prompt = json.at(0);
  EXPECT_EQ(prompt.at("n_prompt").as_int(), 4);
  EXPECT_EQ(prompt.at("n_gen").as_int(), 0);
  EXPECT_EQ(prompt.at("n_batch").as_int(), 4);
  EXPECT_EQ(json.at(1).at("n_threads").as_int(), 3);
  EXPECT_EQ(prompt.at("avg_ns").as_int(), 2000000000);
  EXPECT_EQ(prompt.at("samples_ns").at(1).as_int(), 3000000000);
  EXPECT_DOUBLE_EQ(prompt.at("avg_ts").as_double(), (8.0 + 8.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(prompt.at("flops_share").as_double(), 0.25);
  EXPECT_DOUBLE_EQ(json.at(1).at("memory_share").as_double(), 0.6);
  EXPECT_EQ(prompt.at("model_type").as_string(), "a \"type\"");
}

TEST(BenchTable, SlowMachinesGetNoZeros) {
  const std::string markdown = bench_report(
      {{.n_gen = 2, .tokens = 1, .seconds = {4e5}, .flops = 20, .bytes = 60}}, ResultForm::md);
  EXPECT_NE(markdown.find("0.000002500 ± 0 |"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("0.0000500 %"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("0.000300 %"), std::string::npos) << markdown;
}

TEST(BenchTable, OtherFormsHoldTheSame) {
  const std::string markdown = bench_report(small_tests(), ResultForm::md);
  EXPECT_NE(markdown.find("pp4"), std::string::npos);
  EXPECT_NE(markdown.find("2.000 ± 0 |"), std::string::npos);
  const std::string csv = bench_report(small_tests(), ResultForm::csv);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 3);
  EXPECT_NE(csv.find("\"a \"\"type\"\"\""), std::string::npos) << csv;
  const std::string lines = bench_report(small_tests(), ResultForm::jsonl);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2);
}

TEST(BenchTable, APromptWithGenerationIsNamedAfterBoth) {
  const std::string markdown =
      bench_report({{.n_prompt = 16, .n_gen = 2, .tokens = 18, .seconds = {1}}}, ResultForm::md);
  EXPECT_NE(markdown.find(" pp16+tg2 |"), std::string::npos) << markdown;
}

std::vector<std::string> names_of(const std::vector<ModelTest>& tests) {
  std::vector<std::string> names;
  for (const ModelTest& test : tests) {
    names.push_back(fmt::format("{}+{} of {}", test.n_prompt, test.n_gen, test.batch));
  }
  return names;
}

TEST(ModelTests, AreAllCombinationsThatMakeADifference) {
  Options options;
  EXPECT_EQ(names_of(model_tests(options)),
            (std::vector<std::string>{"512+0 of 512", "0+128 of 512"}));
  options.n_prompt = {8, 4};
  options.n_gen = {2, 1};
  options.prompt_and_gen = {"3,5"};
  options.batch_sizes = {16, 32};
  EXPECT_EQ(names_of(model_tests(options)),
            (std::vector<std::string>{"8+0 of 16", "4+0 of 16", "0+2 of 16", "0+1 of 16",
                                      "3+5 of 16", "8+0 of 32", "4+0 of 32", "3+5 of 32"}));
}

TEST(ModelTests, RefuseWhatIsNone) {
  Options options;
  options.n_prompt = options.n_gen = {0};
  EXPECT_NE(error_message([&] { (void)model_tests(options); }, ErrorKind::usage).find("nothing"),
            std::string::npos);
  for (const char* pair : {"", "5", "5,", ",5", "5,0", "5,6,7", "5,x", "2000000,1"}) {
    options.prompt_and_gen = {pair};
    const std::string message =
        error_message([&] { (void)model_tests(options); }, ErrorKind::usage);
    EXPECT_NE(message.find("--prompt-gen"), std::string::npos) << pair << ": " << message;
  }
}

}  // namespace
}  // namespace moesaic
