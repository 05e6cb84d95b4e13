// moesaic plan: that it knows which options and figures are those of the job that it plans.

#include <gtest/gtest.h>

#include <tuple>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/sft_program.h"
#include "tests/launch/sparse_model.h"
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
  refused("score", {"--prompt-tokens", "3"});
  refused("sft", {"--prompt-tokens", "3"});
  refused("score", {"--recompute", "always"});
  refused("sft", {"--predict", "3"});
  refused("sft", {"--gpu-memory", "1G"});
  refused("serve", {"--prompt-tokens", "3"});
  refused("serve", {"--recompute", "always"});
  refused("generate", {"--lora-rank", "3"});
  refused("generate", {"--global-batch-size", "8"});
  for (const std::string job : {"generate", "serve", "score", "sft"}) {
    planned({"-m", kDemo, "--job", job, "--ctx-size", "64", "--ranks", "2", "--memory", "64G",
             "--ranks-per-node", "1", "--routing", "even", "-t", "1", "--log-level", "info"});
  }
}

TEST(PlannedJob, Adapters_of_experts_want_rows_instead_of_codes) {
  const TemporaryDirectory directory;
  const auto adapter = [&](const std::string& targets) {
    const std::string out = directory.path_of(targets);
    expect_done(run_moesaic(sft(out, {"--max-steps", "1", "--lora-targets", targets})));
    return out;
  };
  const auto row_bytes = [](const Arguments& more) {
    const Arguments job = {"-m",      kDemo, "--expert-format",  "int8",
                           "--ranks", "2",   "--ranks-per-node", "1"};
    return planned(joined(job, more)).at("traffic").at("dispatch_bytes").as_double();
  };
  const double codes = row_bytes({});
  EXPECT_EQ(row_bytes({"--lora", adapter("attention")}), codes);
  EXPECT_GT(row_bytes({"--lora", adapter("experts")}), 1.3 * codes);
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

/// Bytes between two nodes of one rank.
struct SentBytes {
  double seen = 0;
  double planned = 0;  // with heads of messages
};

SentBytes sent_bytes(const std::string& model, const Arguments& format) {
  const TemporaryDirectory directory;
  const std::string prompts = directory.path_of("prompts.jsonl");  // one a rank
  write_text(prompts,
             R"({"prompt": [3, 14, 15, 9, 2, 6, 5, 35, 8, 97, 93, 23, 84, 62, 64, 33]})"
             "\n"
             R"({"prompt": [2, 71, 82, 81, 8, 28, 45, 9, 4, 52, 35, 36, 28, 74, 71, 35]})");
  const std::string routing = directory.path_of("routing.json");  // of write_sparse_model
  write_text(routing, R"({"experts_per_token": 2, "rows": [[1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0],)"
                      R"([1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0]]})");
  const Arguments how = joined({"-m", model, "-n", "5", "--ranks-per-node", "1"}, format);
  const ProgramResult result = run_ranks(
      2,
      joined({"generate", "--json", "--ignore-eos", "--temp", "0", "-t", "1", "-f", prompts}, how));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  const std::string line = lines_of(result.out).back();
  const Json seen = Json::parse(line, "output").at("statistics");
  const auto tokens = static_cast<double>(seen.at("prompt").at("tokens").as_int() +
                                          seen.at("generation").at("tokens").as_int());
  const Json traffic = planned(joined({"--ranks", "2", "--routing", routing}, how)).at("traffic");
  return {seen.at("bytes_sent").as_double(),
          tokens * 2 * traffic.at("inter_node_bytes").as_double()};
}

TEST(PlannedJob, Rows_are_codes_where_experts_take_no_more) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  write_sparse_model(model, {.family = "qwen3_moe", .layers = 2, .hidden = 128, .width = 64});
  const SentBytes whole = sent_bytes(model, {});
  for (const auto& [format, activations, has_codes] : {std::tuple("int8", "bf16", true),
                                                       {"int4_group128", "bf16", false},
                                                       {"int4_group128", "int8", true}}) {
    const SentBytes bytes =
        sent_bytes(model, {"--expert-format", format, "--int4-activations", activations});
    EXPECT_NEAR(whole.planned - bytes.planned, whole.seen - bytes.seen, 1)
        << format << " " << activations;
    EXPECT_EQ(bytes.planned < whole.planned, has_codes) << format << " " << activations;
  }
  const auto training = [&](const std::string& format) {
    return planned({"-m", model, "--job", "sft", "-c", "64", "--ranks", "2", "--ranks-per-node",
                    "1", "--expert-format", format})
        .at("traffic")
        .at("dispatch_bytes")
        .as_double();
  };
  EXPECT_EQ(training("int8"), training("bf16"));  // which goes back through what products took
}

}  // namespace
}  // namespace moesaic::test
