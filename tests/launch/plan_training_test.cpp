// moesaic plan --job sft: that it plans what moesaic sft would do.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/sft_program.h"
#include "tests/launch/sparse_model.h"
#include "tests/parallel/test_machine.h"

namespace moesaic::test {
namespace {

class PlannedTraining : public ::testing::Test {
 protected:
  PlannedTraining() { write_text(machine_, test_machine().text()); }

  [[nodiscard]] ProgramResult run(const std::string& model, const Arguments& more) const {
    return run_moesaic(joined(
        {"plan", "-m", model, "--job", "sft", "-c", "2048", "-b", "4096", "--machine", machine_},
        more));
  }
  [[nodiscard]] Json plan(const std::string& model, const Arguments& more) const {
    const ProgramResult result = run(model, joined({"--json"}, more));
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
  const Json never = plan(kDemo, {"--recompute", "never", "--memory", "8G"});
  const Json always = plan(kDemo, {"--recompute", "always", "--memory", "8G"});
  const std::int64_t most = never.at("per_node_bytes").as_int();
  const std::int64_t least = always.at("per_node_bytes").as_int();
  ASSERT_GT(most, least + (std::int64_t{8} << 20));
  // With memory enough it keeps what layers compute, with less it does not.
  const Json wide = plan(kDemo, {"--memory", "8G"});
  EXPECT_EQ(activation_bytes(wide), activation_bytes(never));
  EXPECT_EQ(tokens_per_second(wide), tokens_per_second(never));
  EXPECT_FALSE(wide.at("recompute").as_bool());
  const std::string between = fmt::format("{}", (most + least) / 2);
  expect_failure(run(kDemo, {"--recompute", "never", "--memory", between}), 4,
                 {"what would help: shorter sequences (--ctx-size), --recompute always"});
  const ProgramResult neither = run(kDemo, {"--memory", fmt::format("{}", least / 2)});
  EXPECT_EQ(neither.exit_code, 4) << neither.text();
  EXPECT_EQ(neither.err.find("--recompute"), std::string::npos) << neither.text();
  const Json narrow = plan(kDemo, {"--memory", between});
  EXPECT_EQ(activation_bytes(narrow), activation_bytes(always));
  EXPECT_EQ(tokens_per_second(narrow), tokens_per_second(always));
  EXPECT_LT(tokens_per_second(narrow), tokens_per_second(wide));
  EXPECT_TRUE(narrow.at("recompute").as_bool());
  EXPECT_NE(narrow.at("sources").at("recompute").as_string().find("--recompute auto"),
            std::string::npos);
  EXPECT_GE(narrow.at("largest").at("batch_size").as_int(), 4096);
  EXPECT_EQ(narrow.at("fewest_nodes").as_int(), 1);
  const ProgramResult text = run(kDemo, {"--memory", between});
  EXPECT_NE(text.out.find("recompute layers run again before their backward pass: a node needs "),
            std::string::npos)
      << text.text();
}

/// A line of data: a sample of so many different tokens.
std::string sample_line(std::int64_t tokens) {
  std::string ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids += fmt::format("{}{}", i > 0 ? ", " : "", i % 2000);
  return fmt::format("{{\"input_ids\": [{0}], \"labels\": [{0}]}}\n", ids);
}

TEST_F(PlannedTraining, takes_the_memory_that_is_planned) {
  const std::string data = directory_.path_of("data.jsonl");
  const std::string held_out = directory_.path_of("held_out.jsonl");
  write_text(data, sample_line(2040) + sample_line(1800));
  write_text(held_out, sample_line(2040));
  const auto check = [&](const std::string& threads, const Arguments& options, double tolerance) {
    const std::string out = directory_.path_of("out");
    const ProgramResult done = run_moesaic(joined(
        {"sft", "-m", kDemo, "--data", data, "--eval-data", held_out, "-o", out, "--overwrite",
         "--max-steps", "1", "--global-batch-size", "2", "-b", "2048", "-t", threads},
        options));
    ASSERT_EQ(done.exit_code, 0) << done.text();
    const std::string end = lines_of(read_text(out + "/metrics.jsonl")).back();
    const auto peak =
        static_cast<double>(Json::parse(end, "metrics.jsonl").at("node_peak_bytes").as_int());
    const Json planned = plan(kDemo, joined({"-c", "2040", "-b", "2048", "--memory", "64G",
                                             "--global-batch-size", "2", "-t", threads},
                                            options));
    const auto bytes = static_cast<double>(planned.at("per_node_bytes").as_int());
    EXPECT_NEAR(bytes, peak, tolerance * peak)
        << options.at(1) << ", " << threads << " threads: " << bytes / 0x1p20 << " MiB planned, "
        << peak / 0x1p20;
  };
  for (const char* const recompute : {"never", "always"}) {
    check("1", {"--recompute", recompute}, 0.1);
    check("1", {"--recompute", recompute, "--lora-rank", "256"}, 0.05);
  }
  // Each has memory to differentiate attention. Of many more threads some find no job, and take
  // none.
  check("16", {"--recompute", "always"}, 0.1);
}

/// Dozens of buffers of some MiB, of none of which a huge page is taken for its end.
TEST_F(PlannedTraining, with_wide_rows_takes_no_more_than_is_planned) {
  const std::string model = directory_.path_of("model");
  write_sparse_model(model, {.layers = 6, .hidden = 640, .width = 320, .topk = 4, .routes = true});
  const std::string data = directory_.path_of("data.jsonl");
  write_text(data, sample_line(1300) + sample_line(1290));
  for (const int ranks : {1, 2}) {
    for (const std::string recompute : {"never", "always"}) {
      const std::string out = directory_.path_of("out");
      const Arguments shared = {
          "-m", model,         "-b",     "1024", "-t", "1", "--global-batch-size",
          "2",  "--recompute", recompute};
      expect_done(
          run_ranks(ranks, joined(joined({"sft"}, shared),
                                  {"--data", data, "-o", out, "--overwrite", "--max-steps", "1"})));
      const std::string end = lines_of(read_text(out + "/metrics.jsonl")).back();
      const auto peak =
          static_cast<double>(Json::parse(end, "metrics.jsonl").at("node_peak_bytes").as_int());
      const ProgramResult planned =
          run_moesaic(joined(joined({"plan", "--json", "--job", "sft", "--memory", "64G"}, shared),
                             {"-c", "1300", "--ranks", std::to_string(ranks)}));
      const auto bytes =
          static_cast<double>(Json::parse(planned.out, "output").at("per_node_bytes").as_int());
      EXPECT_GT(bytes, 0.99 * peak)
          << ranks << " ranks, " << recompute << ", " << peak / 0x1p20 << " MiB";
      EXPECT_LT(bytes, 1.1 * peak)
          << ranks << " ranks, " << recompute << ", " << peak / 0x1p20 << " MiB";
    }
  }
}

TEST_F(PlannedTraining, that_does_not_fit_runs_as_is_planned_to_the_same_bytes) {
  const std::string data = directory_.path_of("data.jsonl");
  write_text(data, sample_line(2040) + sample_line(300));
  const Arguments sizes = {"-c", "2040", "-b", "2048", "--global-batch-size", "2", "-t", "1"};
  const auto planned = [&](const std::string& recompute) {
    return plan(kDemo, joined({"--recompute", recompute, "--memory", "64G"}, sizes))
        .at("per_node_bytes")
        .as_int();
  };
  const std::int64_t between = (planned("always") + planned("never")) / 2;
  struct Trained {
    bool recomputes;
    std::string adapter;
  };
  const auto train = [&](const std::string& limit) {
    const std::string out = directory_.path_of("out");
    const ProgramResult done =
        run_moesaic(joined({"sft", "-m", kDemo, "--data", data, "-o", out, "--overwrite",
                            "--max-steps", "2", "--memory-limit", limit},
                           sizes));
    EXPECT_EQ(done.exit_code, 0) << done.text();
    const std::string start = lines_of(read_text(out + "/metrics.jsonl")).front();
    return Trained{Json::parse(start, "metrics.jsonl").at("recompute").as_bool(),
                   read_text(out + "/adapter_model.safetensors")};
  };
  const Trained keeping = train("64G");
  const Trained again = train(fmt::format("{}", between));
  EXPECT_FALSE(keeping.recomputes);
  EXPECT_TRUE(again.recomputes);
  EXPECT_EQ(again.adapter, keeping.adapter);
}

TEST_F(PlannedTraining, that_goes_on_from_an_adapter_has_its_dropout) {
  const std::string model = kData + "/models/qwen3_moe-v4";
  const std::string adapter = directory_.path_of("adapter");
  std::filesystem::copy(kData + "/adapters/qwen3_moe", adapter);
  const std::string config = adapter + "/adapter_config.json";
  const std::string text = read_text(config);
  const std::string none = "\"lora_dropout\": 0.0";
  ASSERT_NE(text.find(none), std::string::npos);
  const auto write_dropout = [&](const std::string& value) {
    std::string changed = text;
    changed.replace(text.find(none), none.size(), "\"lora_dropout\": " + value);
    write_text(config, changed);
  };
  const auto bytes = [&](const Arguments& more) {
    return activation_bytes(plan(model, joined({"--lora", adapter, "--memory", "8G"}, more)));
  };
  const std::int64_t without = bytes({});
  const std::int64_t with = bytes({"--lora-dropout", "0.1"});
  EXPECT_GT(with, without);
  write_dropout("0.1");
  EXPECT_EQ(bytes({}), with);
  EXPECT_EQ(bytes({"--lora-dropout", "0"}), without);
  write_dropout("1.5");
  expect_failure(run(model, {"--lora", adapter}), 3,
                 {config, "lora_dropout is 1.5", "--lora-dropout 0"});
  expect_failure(run(model, {"--lora", adapter, "--lora-rank", "77"}), 2,
                 {"--lora-rank 77 is not what the adapter of --lora has"});
}

TEST_F(PlannedTraining, TheDiskHoldsCheckpointsAndTheAdapterThatARunWrites) {
  const std::string model = kDemo;
  const Json once = plan(model, {"--memory", "8G"}).at("disk_bytes");
  const std::int64_t one = once.at("checkpoints").as_int();
  EXPECT_EQ(once.at("total").as_int(), one + once.at("adapter").as_int());
  const Json often = plan(model, {"--memory", "8G", "--save-every", "10", "--keep", "3"});
  EXPECT_EQ(often.at("disk_bytes").at("checkpoints").as_int(), 4 * one);
  EXPECT_EQ(often.at("disk_bytes").at("total").as_int(), 4 * one);
  EXPECT_NE(often.at("command").as_string().find("--save-every 10"), std::string::npos);

  const std::string out = directory_.path_of("out");
  const std::string data = directory_.path_of("data.jsonl");
  write_text(data, "{\"text\": \"A sample.\"}\n");
  const ProgramResult trained = run_moesaic(
      {"sft", "-m", model, "--data", data, "-o", out, "-t", "1", "--max-steps", "1", "-c", "64"});
  ASSERT_EQ(trained.exit_code, 0) << trained.text();
  const auto size = [&](const std::string& path) {
    return static_cast<std::int64_t>(std::filesystem::file_size(out + "/" + path));
  };
  EXPECT_NEAR(static_cast<double>(size("adapter_model.safetensors")),
              once.at("adapter").as_double(), 64 << 10);
  std::int64_t written = 0;
  for (const auto& file : std::filesystem::directory_iterator(out + "/checkpoint-1")) {
    written += static_cast<std::int64_t>(file.file_size());
  }
  EXPECT_NEAR(static_cast<double>(written), static_cast<double>(one), 64 << 10);
}

}  // namespace
}  // namespace moesaic::test
