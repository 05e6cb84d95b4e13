// Samples of fine-tuning through the verb score: their trained tokens count.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/sft_program.h"
#include "tests/support/model_copies.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

Arguments score(const std::string& file, const Arguments& more = {}) {
  return joined({"score", "-m", kDemo, "-f", file, "--precision", "fp32", "--json"}, more);
}

/// The objects that are printed.
std::vector<Json> scores(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.text();
  std::vector<Json> lines;
  for (const std::string& line : lines_of(result.out)) lines.push_back(Json::parse(line, "score"));
  return lines;
}

Json total(const ProgramResult& result) {
  return scores(result).back().at("total");
}

TEST(ScoreSamples, HaveTheLossOfTheRunThatHeldThemOut) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string held_out = out + "/held_out.jsonl";
  expect_done(run_ranks(2, sft(out, {"--eval-split", "5", "--precision", "fp32"})));
  const auto evaluations = events(out, "eval");
  ASSERT_EQ(evaluations.size(), 2U);
  ASSERT_EQ(lines_of(read_text(held_out)).size(), 5U);

  const auto expect_loss = [&](const Json& score, const Json& evaluation) {
    EXPECT_EQ(score.at("documents").as_int(), 5);
    EXPECT_EQ(score.at("predicted_tokens").as_int(), evaluation.at("trained_tokens").as_int());
    const double loss = evaluation.at("loss").as_double();
    EXPECT_NEAR(score.at("loss").as_double(), loss, 1e-5 * loss);
  };
  expect_loss(total(run_ranks(1, score(held_out))), evaluations.front());
  const ProgramResult trained = run_ranks(3, score(held_out, {"--lora", out}));
  expect_loss(total(trained), evaluations.back());
  // As data of another run, with the same loss before its first step.
  const std::string other = directory.path_of("other");
  expect_done(
      run_ranks(1, with_steps("1", sft(other, {"--eval-data", held_out, "--precision", "fp32"}))));
  EXPECT_EQ(events(other, "eval").front().at("loss").as_double(),
            evaluations.front().at("loss").as_double());
  EXPECT_FALSE(std::filesystem::exists(other + "/held_out.jsonl"));
}

TEST(ScoreSamples, CountTheSameWhereAnEarlierRunHasScoredThem) {
  const TemporaryDirectory directory;
  const std::string samples = directory.path_of("samples.jsonl");
  write_text(samples,
             "{\"input_ids\": [5, 6, 7, 8, 9], \"labels\": [5, -100, 7, -100, 9], \"id\": \"a\"}\n"
             "{\"input_ids\": [5, 6, 7, 8, 9], \"labels\": [-100, -100, -100, 8, -100]}\n");
  const std::string file = directory.path_of("logprobs");
  const auto run = [&] {
    return score(samples, {"--logprobs-out", file, "-c", "3", "--stride", "2"});
  };
  const ProgramResult whole = run_ranks(2, run());
  const std::vector<Json> lines = scores(whole);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].at("predicted_tokens").as_int(), 2);
  EXPECT_EQ(lines[0].at("id").as_string(), "a");
  EXPECT_EQ(lines[1].at("predicted_tokens").as_int(), 1);
  const std::string bytes = read_text(file);
  std::vector<double> counted;  // minus the log-probabilities of tokens 2 and 4, then of 3
  for (const std::string& line : lines_of(bytes)) {
    const Json record = Json::parse(line, "logprobs");
    if (!record.contains("logprob") || record.at("logprob").is_null()) continue;
    const std::int64_t position = record.at("position").as_int();
    const bool counts = record.at("document").as_int() == 0 ? position % 2 == 0 : position == 3;
    if (counts) counted.push_back(-record.at("logprob").as_double());
  }
  ASSERT_EQ(counted.size(), 3U);
  EXPECT_DOUBLE_EQ(lines[0].at("loss").as_double(), (counted[0] + counted[1]) / 2);
  EXPECT_DOUBLE_EQ(lines[1].at("loss").as_double(), counted[2]);

  std::size_t end = bytes.find('\n') + 1;
  while (end < bytes.size()) {  // after each record
    end = bytes.find('\n', end) + 1;
    write_text(file, bytes.substr(0, end));
    const Json again = total(run_ranks(1, run()));
    EXPECT_EQ(again.at("log_likelihood").as_double(),
              lines[2].at("total").at("log_likelihood").as_double());
    EXPECT_EQ(again.at("predicted_tokens").as_int(), 3);
    EXPECT_TRUE(read_text(file) == bytes);
  }
  write_text(samples, "{\"input_ids\": [5, 6, 7, 8, 9], \"labels\": [5, 6, 7, 8, 9]}\n");
  expect_failure(run_ranks(2, run()), 2, {file, "logprobs of other texts"});
}

TEST(ScoreSamples, ComputeOnlyWindowsInWhichTokensCount) {
  const TemporaryDirectory directory;
  const std::string samples = directory.path_of("samples.jsonl");
  write_text(samples,
             "{\"input_ids\": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14], "
             "\"labels\": [-100, 6, -100, -100, -100, -100, 11, -100, -100, -100]}\n");
  const std::string file = directory.path_of("logprobs");
  const std::vector<Json> lines =
      scores(run_ranks(1, score(samples, {"-c", "2", "--stride", "1", "--logprobs-out", file})));
  EXPECT_EQ(lines.front().at("predicted_tokens").as_int(), 2);
  std::vector<std::int64_t> known;
  for (const std::string& line : lines_of(read_text(file))) {
    const Json record = Json::parse(line, "logprobs");
    if (record.contains("logprob") && !record.at("logprob").is_null()) {
      known.push_back(record.at("position").as_int());
    }
  }
  EXPECT_EQ(known, (std::vector<std::int64_t>{1, 6}));
}

TEST(ScoreSamples, AndOtherIdsNeedNoTokenizer) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  std::filesystem::remove(model + "/tokenizer.json");
  const std::string file = directory.path_of("ids.jsonl");
  const std::string ids =
      "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, 6, -100, 8]}\n"
      "{\"text\": [20, 30, 40, 50]}\n"
      "{\"context\": [20, 30], \"continuation\": [60, 70]}\n";
  write_text(file, ids);
  const Arguments without = {"score", "-m", model, "-f", file, "--precision", "fp32", "--json"};
  const double loss = total(run_ranks(1, score(file))).at("loss").as_double();
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(total(run_ranks(ranks, without)).at("loss").as_double(), loss) << ranks;
  }
  expect_failure(run_ranks(3, joined(without, {"--logprobs-out", directory.path_of("logprobs")})),
                 3, {model + "/tokenizer.json"});
  write_text(file, ids + "{\"text\": \"In the beginning\"}\n");
  expect_failure(run_ranks(3, without), 3, {model + "/tokenizer.json"});
}

TEST(ScoreSamples, ThatCannotBeScoredAreNamed) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("samples.jsonl");
  const auto refuse = [&](const std::string& line, const std::vector<std::string>& words) {
    write_text(file, "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n" + line + "\n");
    std::vector<std::string> all = words;
    all.push_back("line 2");
    expect_failure(run_ranks(2, score(file)), 3, all);
  };
  refuse("{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 4]}", {"label 4 of token 2"});
  refuse("{\"input_ids\": [1, 2, 3], \"labels\": [1, -100, -100]}", {"nothing to score"});
  refuse("{\"input_ids\": [1, 2, 3], \"labels\": [1, 2]}", {"2 labels for 3 input_ids"});
  refuse("{\"input_ids\": [1, 2, 3]}", {"labels"});
  refuse("{\"input_ids\": [1, 2048], \"labels\": [1, 2048]}", {"2048"});
  write_text(file, "{\"input_ids\": [1, 2, 3, 4, 5], \"labels\": [-100, -100, -100, 4, -100]}\n");
  expect_failure(run_ranks(2, score(file, {"-c", "3", "--stride", "3"})), 3,
                 {"line 1", "of which nothing is predicted"});
  refuse("{\"messages\": []}", {"messages", "moesaic sft --samples-out"});
  refuse("{\"completion\": []}", {"completion", "moesaic sft --samples-out"});
  refuse("{\"title\": \"a\"}", {"title"});
}

TEST(ScoreSamples, OfARunAreNotRemovedBeforeTheyAreData) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const std::string held_out = out + "/held_out.jsonl";
  const Arguments run = with_steps("1", sft(out, {"--eval-split", "2"}));
  expect_done(run_ranks(1, run));
  const std::string bytes = read_text(held_out);
  const Arguments anew = with_steps("1", sft(out, {"--eval-data", held_out, "--overwrite"}));
  expect_failure(run_ranks(1, anew), 2, {"--eval-data", held_out, "take another"});
  EXPECT_EQ(read_text(held_out), bytes);
  expect_done(run_ranks(1, joined(with_steps("1", sft(out)), {"--overwrite"})));
  EXPECT_FALSE(std::filesystem::exists(held_out));  // of the earlier run
}

}  // namespace
}  // namespace moesaic::test
