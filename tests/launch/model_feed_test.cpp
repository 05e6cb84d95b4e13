// What benchmarks of models feed them, seen in the experts that a point's tokens choose.

#include <gtest/gtest.h>

#include "launch/bench/built_in_text.h"
#include "tests/launch/bench_program.h"

namespace moesaic::test {
namespace {

const std::string kNoTokenizer = kData + "/models/qwen3_moe-v4";

Json point(const Arguments& more) {
  const ProgramResult result =
      run_moesaic(joined({"study", "point", "-m", kDemo, "-t", "1", "--no-roofs", "-r", "1",
                          "--sequences", "2", "--n-prompt", "700"},
                         more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return Json::parse(result.out, "point");
}

std::vector<std::int64_t> expert_rows(const Json& point) {
  std::vector<std::int64_t> rows;
  point.at("expert_rows").for_each([&](const std::string&, const Json& layer) {
    layer.for_each(
        [&](const std::string&, const Json& expert) { rows.push_back(expert.as_int()); });
  });
  return rows;
}

TEST(ModelFeed, IsATextOfTheProgramsUnlessAnotherOrRandomTokensAreAskedFor) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("text");
  write_text(file, std::string(built_in_text()));
  const Json own = point({});
  const Json same = point({"--text", file});
  const Json random = point({"--text", "random"});
  EXPECT_EQ(own.at("routing").as_string(), "built-in text");
  EXPECT_EQ(same.at("routing").as_string(), "text");
  EXPECT_EQ(random.at("routing").as_string(), "random tokens");
  EXPECT_EQ(expert_rows(own), expert_rows(same));
  EXPECT_NE(expert_rows(own), expert_rows(random));
  EXPECT_NE(expert_rows(random), expert_rows(point({"--text", "random", "--seed", "2"})));
}

TEST(ModelFeed, IsToldByBenchmarks) {
  const Arguments model = {"bench", "model", "-m", kDemo, "-p", "4", "-n", "0", "-r", "1"};
  const auto routing = [&](const Arguments& more) {
    return parse_table(run_ranks(2, joined(joined(model, {"-o", "json"}), more)))
        .at(0)
        .at("routing")
        .as_string();
  };
  EXPECT_EQ(routing({}), "built-in text");
  EXPECT_EQ(routing({"--text", kData + "/demo-prompts.txt"}), "text");
  EXPECT_EQ(routing({"--text", "random"}), "random tokens");
  const ProgramResult told = run_moesaic(model);
  EXPECT_NE(told.out.find("\ntokens fed: built-in text\n"), std::string::npos) << told.text();
}

TEST(ModelFeed, IsRandomTokensForAModelWithoutATokenizer) {
  for (const Arguments& verb :
       {Arguments{"bench", "model", "-p", "4", "-n", "0"},
        Arguments{"bench", "sft", "--step-tokens", "8", "--sample-tokens", "4"}}) {
    const Arguments command = joined(verb, {"-m", kNoTokenizer, "-r", "1", "-o", "json"});
    const ProgramResult result = run_ranks(2, command);
    EXPECT_EQ(parse_table(result).at(0).at("routing").as_string(), "random tokens");
    EXPECT_NE(result.err.find("has no tokenizer.json: random tokens are fed"), std::string::npos)
        << result.text();
    const ProgramResult asked = run_moesaic(joined(command, {"--text", "random"}));
    EXPECT_EQ(asked.exit_code, 0) << asked.text();
    EXPECT_EQ(asked.err.find("warning"), std::string::npos) << asked.text();
  }
  expect_failure(
      run_moesaic({"bench", "model", "-m", kNoTokenizer, "--text", kData + "/demo-prompts.txt"}), 3,
      {"tokenizer.json"});
}

}  // namespace
}  // namespace moesaic::test
