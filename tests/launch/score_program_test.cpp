// The verb score through the program: windows, pairs and what is written, beside transformers.

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "base/json.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kHeldOut = kData + "/demo-heldout.txt";

Arguments score(const Arguments& more) {
  return joined({"score", "-m", kDemo}, more);
}

/// The lines of --json: one a document, and the last with the total.
std::vector<Json> json_lines(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.text();
  std::vector<Json> lines;
  for (const std::string& line : lines_of(result.out)) lines.push_back(Json::parse(line, "score"));
  return lines;
}

/// What a file of --logprobs-out has below its first line.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> lines = lines_of(read_text(file));
  EXPECT_FALSE(lines.empty());
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

/// What is printed of texts, without the statistics of a run.
std::string scores_of(const std::string& out) {
  const std::size_t end = out.find(", \"statistics\"");
  return end == std::string::npos ? out : out.substr(0, end) + "}\n";
}

Json golden() {
  return Json::read_file(kData + "/score-golden.json");
}

TEST(Score, WindowsAreThoseOfTransformers) {
  const TemporaryDirectory directory;
  golden().at("windows").for_each([&](const std::string&, const Json& wanted) {
    const std::string file = directory.path_of(
        fmt::format("{}-{}", wanted.at("context").as_int(), wanted.at("stride").as_int()));
    const std::int64_t context = wanted.at("context").as_int();
    Arguments arguments = score({"-f", kHeldOut, "--precision", "fp32", "--json", "-c",
                                 std::to_string(context), "--logprobs-out", file});
    if (2 * wanted.at("stride").as_int() != context) {  // else it is the default
      arguments.insert(arguments.end(), {"--stride", std::to_string(wanted.at("stride").as_int())});
    }
    const std::vector<Json> lines = json_lines(run_ranks(2, arguments));
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0].at("windows").as_int(), wanted.at("windows").as_int());
    EXPECT_EQ(lines[0].at("predicted_tokens").as_int(), wanted.at("predicted_tokens").as_int());
    EXPECT_NEAR(lines[0].at("loss").as_double(), wanted.at("loss").as_double(), 2e-6);
    EXPECT_NEAR(lines[0].at("perplexity").as_double(), wanted.at("perplexity").as_double(), 1e-4);
    EXPECT_EQ(lines[1].at("total").at("loss").as_double(), lines[0].at("loss").as_double());

    const std::vector<std::string> tokens = records_of(file);
    ASSERT_EQ(std::ssize(tokens), golden().at("tokens").as_int());
    std::int64_t unpredicted = 0;
    for (const std::string& token : tokens) {
      unpredicted += Json::parse(token, "token").contains("logprob") ? 0 : 1;
    }
    EXPECT_EQ(std::ssize(tokens) - unpredicted, wanted.at("predicted_tokens").as_int());
    if (unpredicted > 1) return;  // the list of the golden has other tokens
    const std::int64_t first = wanted.at("first_listed").as_int() + 1;
    for (std::int64_t i = 0; i < wanted.at("logprobs").size(); ++i) {
      const Json token = Json::parse(tokens[static_cast<std::size_t>(first + i)], "token");
      EXPECT_EQ(token.at("position").as_int(), first + i);
      EXPECT_NEAR(token.at("logprob").as_double(), wanted.at("logprobs").at(i).as_double(), 5e-5);
      EXPECT_EQ(token.at("rank").as_int(), wanted.at("ranks").at(i).as_int()) << i;
    }
  });
}

TEST(Score, PairsAreThoseOfTransformers) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("pairs.jsonl");
  const Json pairs = golden().at("pairs");
  std::string text;
  pairs.for_each([&](const std::string&, const Json& pair) {
    text += JsonWriter()
                .field("id", text.empty() ? "first" : "other")
                .field("context", pair.at("context").as_string())
                .field("continuation", pair.at("continuation").as_string())
                .text() +
            "\n\n";
  });
  write_text(file, "\xEF\xBB\xBF" + text);
  const std::vector<Json> lines =
      json_lines(run_ranks(3, score({"-f", file, "--precision", "fp32", "--json"})));
  ASSERT_EQ(std::ssize(lines), pairs.size() + 1);
  EXPECT_EQ(lines[0].at("id").as_string(), "first");
  EXPECT_EQ(lines[1].at("source").as_string(), file + " line 3");
  for (std::int64_t i = 0; i < pairs.size(); ++i) {
    const Json& line = lines[static_cast<std::size_t>(i)];
    EXPECT_EQ(line.at("index").as_int(), i);
    EXPECT_NEAR(line.at("log_likelihood").as_double(), pairs.at(i).at("log_likelihood").as_double(),
                5e-5);
    EXPECT_EQ(line.at("is_greedy").as_bool(), pairs.at(i).at("is_greedy").as_bool());
    EXPECT_EQ(line.at("predicted_tokens").as_int(), pairs.at(i).at("tokens").as_int());
  }
}

TEST(Score, TokenIdsAreTakenAsTheyAreAndLongContextsFromTheEnd) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("ids.jsonl");
  write_text(file,
             "{\"context\": [5, 6, 7, 20, 30, 40, 50], \"continuation\": [60, 70]}\n"
             "{\"context\": [20, 30, 40, 50], \"continuation\": [60, 70]}\n"
             "{\"text\": [20, 30, 40, 50]}\n");
  const std::vector<Json> lines = json_lines(
      run_moesaic(score({"-f", file, "--json", "-c", "5"})));  // and one that is predicted
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].at("log_likelihood").as_double(), lines[1].at("log_likelihood").as_double());
  EXPECT_EQ(lines[2].at("predicted_tokens").as_int(), 3);
  EXPECT_EQ(lines[3].at("total").at("predicted_tokens").as_int(), 7);
  EXPECT_EQ(lines[3].at("total").at("documents").as_int(), 3);
}

TEST(Score, FilesAreTakenInTheirOrderWithTheSameBytesOnAllRanks) {
  const TemporaryDirectory directory;
  const auto run = [&](int ranks, const std::string& batch) {
    const std::string file = directory.path_of(batch + "." + std::to_string(ranks));
    const std::vector<std::string> lines = lines_of(
        run_ranks(ranks, score({"-f", kHeldOut, "-f", kData + "/demo-prompts.txt", "-c", "200",
                                "--stride", "63", "-b", batch, "--logprobs-out", file, "--json"}))
            .out);
    EXPECT_EQ(lines.size(), 3U);
    return lines.at(0) + "\n" + lines.at(1) + "\n" + read_text(file);
  };
  const std::string alone = run(1, "512");
  EXPECT_NE(alone.find("\"source\": \"" + kHeldOut), std::string::npos);
  EXPECT_TRUE(alone == run(2, "512"));
  EXPECT_TRUE(alone == run(3, "100"));
  EXPECT_TRUE(alone == run(4, "31"));
}

TEST(Score, LinesForPeopleNameTheDocuments) {
  const Arguments one = score({"-f", kHeldOut, "--log-level", "error"});
  const std::string text = run_moesaic(one).out;
  EXPECT_EQ(text.find("loss "), 0U) << text;
  EXPECT_NE(text.find("over 3706 tokens"), std::string::npos) << text;
  const std::vector<std::string> lines =
      lines_of(run_moesaic(joined(one, {"-f", kData + "/demo-prompts.txt"})).out);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].find(kHeldOut + ": loss "), 0U) << lines[0];
  EXPECT_EQ(lines[2].find("all 2: loss "), 0U) << lines[2];
}

TEST(Score, AWholeFileIsATextWhateverItBeginsWith) {
  const TemporaryDirectory directory;
  const std::string program = R"({ return "text"; })";
  const std::string file = directory.path_of("program.c");
  write_text(file, program);
  expect_failure(run_moesaic(score({"-f", file})), 3, {"line 1", "JSON", "--whole-file"});
  const std::string line = directory.path_of("line.jsonl");
  write_text(line, R"({"text": "{ return \"text\"; }"})");
  const auto scored = [](const Arguments& more) {
    return json_lines(run_moesaic(joined(score({"--json", "-f"}), more))).at(0);
  };
  EXPECT_EQ(scored({file, "--whole-file"}).at("log_likelihood").as_double(),
            scored({line}).at("log_likelihood").as_double());
}

TEST(Score, WrongInputIsNamed) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("in.jsonl");
  const auto refuse = [&](const std::string& line, int code, const std::vector<std::string>& texts,
                          const Arguments& more = {}) {
    write_text(file, "{\"text\": \"In the beginning\"}\n" + line + "\n");
    std::vector<std::string> all = texts;
    all.push_back("line 2");
    expect_failure(run_ranks(2, joined(score({"-f", file}), more)), code, all);
  };
  refuse("{\"text\": \"a b\", \"max_tokens\": 3}", 3, {"max_tokens"});
  refuse("{\"text\": \"a b\", \"context\": \"a\"}", 3, {"excludes"});
  refuse("{\"context\": \"a\"}", 3, {"continuation"});
  refuse("{\"context\": \"\", \"continuation\": \"a\"}", 3, {"context has no tokens"});
  refuse("{\"context\": \"a\", \"continuation\": \"\"}", 3, {"continuation has no tokens"});
  refuse("{\"context\": [1], \"continuation\": \"a\"}", 3, {"both"});
  refuse("{\"text\": [1, 2048]}", 3, {"2048"});
  refuse("{\"text\": [1]}", 3, {"1 token", "nothing to predict"});
  refuse("{\"context\": [1], \"continuation\": [2, 3, 4, 5, 6]}", 2, {"continuation", "5"},
         {"-c", "4"});
  refuse("nonsense", 3, {});
  expect_failure(run_moesaic(score({"-f", kHeldOut, "--stride", "3000"})), 2, {"3000", "2048"});
  expect_failure(run_moesaic(score({"-f", kHeldOut, "--no-window"})), 2, {"3707", "2048"});
  expect_failure(run_moesaic(score({"-f", kHeldOut, "--no-window", "--stride", "9"})), 2,
                 {"--stride"});
  expect_failure(run_moesaic(score({"-f", kHeldOut, "--logits-out", file})), 2, {"3 windows"});
}

TEST(Score, KeepsWhatIsScoredWhenItIsInterrupted) {
  const TemporaryDirectory directory;
  const std::string texts = directory.path_of("texts.jsonl");
  const std::string file = directory.path_of("logprobs");
  std::string text;
  for (int i = 0; i < 20000; ++i)
    text += "{\"text\": \"In the beginning of " + std::to_string(i) + "\"}\n";
  write_text(texts, text);
  RunningProgram program(
      moesaic_command(score({"-f", texts, "--logprobs-out", file, "--json", "-b", "64"})));
  ASSERT_TRUE(program.wait_until([&] { return lines_of(program.out()).size() > 3; }));
  program.send(SIGTERM);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 6) << result.text();
  EXPECT_NE(result.err.find("of 20000 texts are scored"), std::string::npos) << result.err;
  const std::vector<std::string> lines = lines_of(result.out);
  const Json total = Json::parse(lines.back(), "total").at("total");
  EXPECT_EQ(total.at("documents").as_int(), std::ssize(lines) - 1);
  EXPECT_LT(std::ssize(lines), 20000);
  const std::vector<std::string> tokens = records_of(file);
  EXPECT_GE(Json::parse(tokens.back(), "token").at("document").as_int(), std::ssize(lines) - 2);
}

TEST(Score, RunsThatAreStoppedAnywhereGoOnToTheBytesOfOneThatIsNot) {
  const TemporaryDirectory directory;
  const std::string pairs = directory.path_of("pairs.jsonl");
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "{\"text\": \"In the beginning of " + std::to_string(i) + "\"}\n" +
            "{\"context\": \"In the\", \"continuation\": \" beginning\", \"id\": 7}\n";
  }
  write_text(pairs, text);
  const auto run = [&](const std::string& file, const Arguments& more = {}) {
    return joined(score({"-f", pairs, "-f", kHeldOut, "-f", pairs, "-c", "60", "-b", "32", "--json",
                         "--logprobs-out", file}),
                  more);
  };
  const std::string whole = directory.path_of("whole");
  const ProgramResult expected = run_ranks(2, run(whole));
  ASSERT_EQ(expected.exit_code, 0) << expected.text();
  const std::string bytes = read_text(whole);

  const std::string file = directory.path_of("file");
  const auto written = [&] { return std::filesystem::exists(file) ? read_text(file) : ""; };
  const std::vector<std::pair<int, std::size_t>> stops = {{1, 1}, {2, 700}, {1, 2500}};
  for (const auto& [ranks, lines] : stops) {
    RunningProgram program(ranks_command(ranks, run(file)));
    program.wait_until([&, count = lines] { return lines_of(written()).size() > count; });
    program.send(SIGKILL);  // of mpirun: its ranks die with it
    static_cast<void>(program.wait());
    wait_until_nobody_writes(file);
    EXPECT_TRUE(bytes.starts_with(written())) << "after " << lines << " lines";
    write_text(file, written() + bytes.substr(written().size(), 20));  // cut short
  }
  const ProgramResult last = run_ranks(3, run(file));
  EXPECT_EQ(last.exit_code, 0) << last.text();
  EXPECT_TRUE(read_text(file) == bytes);
  EXPECT_EQ(scores_of(last.out), scores_of(expected.out));

  // The rest of a document whose beginning is known, and nothing at all.
  for (const std::size_t size : {bytes.size() / 2, bytes.size()}) {
    write_text(file, bytes.substr(0, size));
    const ProgramResult again = run_moesaic(run(file));
    EXPECT_EQ(again.exit_code, 0) << again.text();
    EXPECT_TRUE(read_text(file) == bytes);
    EXPECT_EQ(scores_of(again.out), scores_of(expected.out));
    const bool is_done = again.err.find("nothing is left to do") != std::string::npos;
    EXPECT_EQ(is_done, size == bytes.size()) << again.text();
  }
  expect_failure(run_ranks(2, run(file, {"--stride", "7"})), 2, {file, "--stride", "7"});
  expect_failure(run_moesaic(score({"-f", kHeldOut, "-c", "60", "--logprobs-out", file})), 2,
                 {file, "logprobs of other texts", "another --logprobs-out"});
  EXPECT_TRUE(read_text(file) == bytes);
}

TEST(Score, LogitsAreWholeWhateverTheFileOfLogprobsHas) {
  const TemporaryDirectory directory;
  const std::string text = directory.path_of("text");
  write_text(text, "And God said, Let there be light");
  const auto run = [&](const std::string& logits) {
    EXPECT_EQ(run_moesaic(score({"-f", text, "--logits-out", directory.path_of(logits),
                                 "--logprobs-out", directory.path_of("logprobs")}))
                  .exit_code,
              0);
    return read_text(directory.path_of(logits)) + read_text(directory.path_of("logprobs"));
  };
  const std::string first = run("one");
  EXPECT_TRUE(run("two") == first);
}

TEST(Score, ALastTokenThatNoWindowPredictsIsInTheFileOfLogprobsAndInNoFileOfLogits) {
  const TemporaryDirectory directory;
  const std::string texts = directory.path_of("texts.jsonl");
  const std::string file = directory.path_of("logprobs");
  const std::string nine = "{\"text\": [10, 11, 12, 13, 14, 15, 16, 17, 18]}\n";
  write_text(texts, nine + nine);
  const Arguments run = score({"-f", texts, "-c", "8", "--stride", "8", "--logprobs-out", file});
  EXPECT_EQ(run_moesaic(run).exit_code, 0);
  const std::vector<std::string> records = records_of(file);
  ASSERT_EQ(records.size(), 18U);
  for (const std::size_t last : {8U, 17U}) {
    EXPECT_TRUE(Json::parse(records[last], "record").find("logprob") == std::nullopt);
  }
  const std::string whole = read_text(file);
  std::size_t end = 0;
  for (int line = 0; line < 9; ++line) end = whole.find('\n', end) + 1;
  for (const std::string& kept : {whole, whole.substr(0, end)}) {
    write_text(file, kept);  // the second: up to the last token that is predicted
    const ProgramResult again = run_moesaic(run);
    EXPECT_EQ(again.exit_code, 0) << again.text();
    EXPECT_TRUE(read_text(file) == whole);
  }
  const std::string logits = directory.path_of("logits");
  for (const std::string& line :
       {nine, std::string("{\"context\": [10, 11, 12], \"continuation\": [13]}\n")}) {
    write_text(texts, line);
    expect_failure(
        run_moesaic(score({"-f", texts, "-c", "8", "--stride", "8", "--logits-out", logits})), 2,
        {"--logits-out", "one text that fits"});
  }
}

TEST(Score, AContextBeyondTheModelsIsWarnedOf) {
  const ProgramResult result = run_moesaic(score({"-f", kHeldOut, "-c", "4096"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.err.find("2048"), std::string::npos) << result.err;
}

/// What follows the name of the text in the one line of error.
std::string damage_told(const ProgramResult& result, const std::string& text) {
  EXPECT_EQ(result.exit_code, 3) << result.text();
  EXPECT_EQ(result.error_lines(), 1) << result.text();
  EXPECT_EQ(result.out.find("nan"), std::string::npos) << result.text();
  const std::size_t at = result.err.find(text + ": ");
  if (at == std::string::npos) return "nothing: " + result.text();
  const std::size_t begin = at + text.size() + 2;
  return result.err.substr(begin, result.err.find('\n', begin) - begin);
}

TEST(Score, DamagedWeightsAreToldWithTheFirstTokenAndLayer) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  damage_tensor(model, "model.layers.2.mlp.experts.3.down_proj.weight", 8);
  const Arguments arguments = {"score", "-m", model, "-f", kHeldOut, "-c", "64", "-b", "16"};
  const std::string alone = damage_told(run_moesaic(arguments), kHeldOut);
  EXPECT_EQ(alone.find("layer 2 gives values that are not finite at position "), 0U) << alone;
  EXPECT_EQ(damage_told(run_ranks(3, arguments), kHeldOut), alone);
  EXPECT_EQ(damage_told(run_moesaic(joined(arguments, {"--json"})), kHeldOut), alone);

  const ProgramResult generated =
      run_moesaic({"generate", "-m", model, "-f", kData + "/demo-prompts.txt", "-n", "40"});
  expect_failure(generated, 3, {"demo-prompts.txt line ", "layer 2", "not finite"});
}

TEST(Score, ADamagedEmbeddingOrOutputMatrixIsToldToo) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  const std::string text = directory.path_of("text");
  write_text(text, "And God said, Let there be light");
  copy_model("demo-model", model);
  damage_tensor(model, "model.norm.weight", 1);
  const ProgramResult head = run_ranks(2, {"score", "-m", model, "-f", text});
  EXPECT_EQ(damage_told(head, text)
                .find("the output matrix gives values that are not finite at "
                      "position 0 (\"And\")"),
            0U)
      << head.text();
  const std::string prompts = directory.path_of("prompts");
  write_text(prompts, "{\"prompt\": \"\"}\n\n{\"prompt\": \"And God said\"}\n");
  for (const int ranks : {1, 2}) {
    expect_failure(run_ranks(ranks, {"generate", "-m", model, "-f", prompts, "-n", "4"}), 3,
                   {prompts + " line 3: the output matrix", "not finite at position 2"});
  }
}

}  // namespace
}  // namespace moesaic::test
