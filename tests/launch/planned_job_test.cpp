// moesaic plan: that it knows which options and figures are those of the job that it plans.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/parallel/test_machine.h"

namespace moesaic::test {
namespace {

Json planned(const Arguments& more) {
  const ProgramResult result = run_moesaic(joined({"plan", "--json"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return Json::parse(result.out, "output");
}

TEST(PlannedJob, Options_of_another_job_are_refused) {
  const auto refused = [&](const std::string& job, const Arguments& option) {
    expect_failure(run_moesaic(joined({"plan", "-m", kDemo, "--job", job, "--json"}, option)), 2,
                   {option.front() + " is no option of moesaic " + job + " (--job " + job + ")"});
  };
  refused("score", {"--parallel", "3"});
  refused("score", {"--predict", "3"});
  refused("score", {"--recompute", "always"});
  refused("sft", {"--predict", "3"});
  refused("sft", {"--gpu-memory", "1G"});
  refused("generate", {"--lora-rank", "3"});
  refused("generate", {"--global-batch-size", "8"});
  for (const std::string job : {"generate", "score", "sft"}) {
    planned({"-m", kDemo, "--job", job, "--ctx-size", "64", "--ranks", "2", "--memory", "64G",
             "--ranks-per-node", "1", "--routing", "even", "-t", "1", "--log-level", "info"});
  }
}

TEST(PlannedJob, Figures_of_json_have_sources) {
  const Arguments job = {"-m", kDemo, "--ranks", "4", "--ranks-per-node", "2", "--job", "sft"};
  const Json told = planned(joined(job, {"-c", "64", "-t", "3"}));
  EXPECT_EQ(told.at("nodes").as_int(), 2);
  EXPECT_EQ(told.at("threads").as_int(), 3);
  const Json sources = told.at("sources");
  EXPECT_EQ(sources.at("threads").as_string(), "--threads");
  told.at("items").for_each([&](const std::string& item, const Json& bytes) {
    const bool is_weight = item == "expert" || item == "dense";
    EXPECT_EQ(sources.contains(is_weight ? "weights" : item), bytes.as_int() > 0) << item;
  });
  for (const char* figure : {"limit", "traffic", "largest", "fewest_nodes", "recompute"}) {
    EXPECT_TRUE(sources.contains(figure)) << figure;
  }
  const TemporaryDirectory directory;
  const std::string machine = directory.path_of("machine.json");
  write_text(machine, test_machine().text());
  const Json shared = planned(joined(job, {"-c", "64", "--machine", machine}));
  EXPECT_TRUE(shared.at("sources").at("threads").as_string().ends_with("machine.json"));
  EXPECT_TRUE(shared.at("sources").contains("time"));
}

TEST(PlannedJob, What_would_help_are_options_of_the_planned_job) {
  const auto help = [](const std::string& job) {
    return run_moesaic({"plan", "-m", kDemo, "--job", job, "--ctx-size", "2048", "--batch-size",
                        "16", "--precision", "fp32", "--memory", "1M"})
        .err;
  };
  EXPECT_NE(help("generate").find("--parallel"), std::string::npos) << help("generate");
  EXPECT_NE(help("score").find("(--ctx-size), "), std::string::npos) << help("score");
  for (const char* option : {"--parallel", "--predict"}) {
    EXPECT_EQ(help("score").find(option), std::string::npos) << help("score");
  }
}

}  // namespace
}  // namespace moesaic::test
