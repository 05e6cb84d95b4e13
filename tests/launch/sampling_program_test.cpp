// Options of sampling, seen from outside.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

ProgramResult run(const Arguments& more) {
  const ProgramResult result = run_moesaic(joined(generate_with({"-n", "24"}), more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return result;
}

std::vector<std::int64_t> ids(const Arguments& more) {
  std::vector<std::int64_t> result;
  Json::parse(lines_of(run(joined({"--json"}, more)).out).at(0), "line 1")
      .at("ids")
      .for_each([&](const std::string&, const Json& id) { result.push_back(id.as_int()); });
  return result;
}

TEST(Sampling, DefaultsAreTheModelsAndTheBannerSaysSo) {
  // The demo model says 0.7, 40 and 0.95.
  const ProgramResult result = run({});
  EXPECT_NE(result.err.find("sampling: temp 0.7, top-k 40, top-p 0.95 (generation_config.json); "
                            "seed 0 (default)"),
            std::string::npos)
      << result.text();
  EXPECT_EQ(run({"--temp", "0.7"}).out, result.out);
  EXPECT_NE(run({"--temp", "0.8"}).out, result.out) << "the default of the option";

  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const std::string config = read_text(model + "/generation_config.json");
  write_text(model + "/generation_config.json",
             replaced(config, "\"do_sample\": true", "\"do_sample\": false"));
  EXPECT_EQ(run({"-m", model}).out, run({"--temp", "0"}).out);
  write_text(model + "/generation_config.json",
             replaced(config, "\"temperature\": 0.7", "\"temperature\": -1"));
  expect_failure(run_moesaic(generate_with({"-m", model})), 3,
                 {"generation_config.json", "temperature"});
}

TEST(Sampling, EveryOptionReachesTheSampler) {
  std::set<std::vector<std::int64_t>> different = {ids({"--temp", "1.5", "--top-k", "0"})};
  for (const Arguments& more : std::vector<Arguments>{{"--min-p", "0.2"},
                                                      {"--repeat-penalty", "1.5"},
                                                      {"--presence-penalty", "1"},
                                                      {"--frequency-penalty", "2"},
                                                      {"--top-p", "0.5"},
                                                      {"--top-k", "3"},
                                                      {"--seed", "5"}}) {
    const Arguments all = joined({"--temp", "1.5", "--top-k", "0"}, more);
    EXPECT_TRUE(different.insert(ids(all)).second) << testing::PrintToString(more);
  }
}

TEST(Sampling, PenaltiesKeepATextFromRepeating) {
  const auto all_differ = [](const std::vector<std::int64_t>& tokens) {
    return std::set<std::int64_t>(tokens.begin(), tokens.end()).size() == tokens.size();
  };
  const std::vector<std::int64_t> free = ids({"--temp", "0", "-n", "60"});
  EXPECT_FALSE(all_differ(free));
  EXPECT_TRUE(all_differ(ids({"--temp", "0", "-n", "60", "--presence-penalty", "100"})));
  EXPECT_FALSE(all_differ(
      ids({"--temp", "0", "-n", "60", "--presence-penalty", "100", "--repeat-last-n", "3"})));
  EXPECT_EQ(ids({"--temp", "0", "-n", "60", "--presence-penalty", "100", "--repeat-last-n", "0"}),
            free);
}

TEST(Sampling, ABiasForbidsAndForces) {
  const std::vector<std::int64_t> free = ids({"--temp", "0"});
  const std::string first = std::to_string(free.front());
  const std::vector<std::int64_t> without = ids({"--temp", "0", "--logit-bias", first + "-inf"});
  EXPECT_EQ(std::ranges::count(without, free.front()), 0);
  EXPECT_EQ(ids({"-l", first + "+1000"}), std::vector<std::int64_t>(24, free.front()));
  expect_failure(run_moesaic(generate_with({"-l", "99999+1"})), 2, {"99999", "2048"});
}

TEST(Sampling, TextsEndBeforeAStopString) {
  const std::string free = run({"--temp", "0", "--no-display-prompt"}).out;
  ASSERT_GT(free.size(), 30U);
  const std::string stop = free.substr(12, 7);  // across tokens
  for (const int ranks : {1, 3}) {
    const ProgramResult stopped =
        run_ranks(ranks, generate_with({"-n", "24", "--temp", "0", "--no-display-prompt", "--stop",
                                        "no such text", "--stop", stop}));
    EXPECT_EQ(stopped.out, free.substr(0, free.find(stop)) + "\n") << stopped.text();
  }
}

TEST(Sampling, TheContinuationAloneIsPrinted) {
  const std::string prompt = "In the beginning";
  const std::string whole = run({"--temp", "0"}).out;
  EXPECT_EQ(prompt + run({"--temp", "0", "--no-display-prompt"}).out, whole);
}

TEST(Sampling, ADrawnSeedCanBeUsedAgain) {
  const ProgramResult drawn = run({"--seed", "-1"});
  const std::size_t at = drawn.err.find("seed ");
  ASSERT_NE(at, std::string::npos) << drawn.text();
  const std::string seed = drawn.err.substr(at + 5, drawn.err.find(' ', at + 5) - at - 5);
  EXPECT_EQ(run({"--seed", seed}).out, drawn.out) << seed;
  EXPECT_EQ(run_ranks(3, generate_with({"-n", "24", "--seed", seed})).out, drawn.out);
}

TEST(Sampling, BadValuesAreRefusedBeforeAnythingIsLoaded) {
  for (const Arguments& more :
       std::vector<Arguments>{{"--top-p", "0"}, {"--repeat-penalty", "0"}, {"-l", "7"}}) {
    const ProgramResult result = run_moesaic(generate_with(more));
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.find("weights"), std::string::npos) << result.text();
  }
}

}  // namespace
}  // namespace moesaic::test
