// The file of --out: runs that are stopped at any place, killed or asked to, end in the same bytes.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

constexpr int kStopped = 6;
constexpr std::int64_t kPrompts = 400;

/// Prompts, a bad one among them, and where their texts go.
class ResultFileProgram : public testing::Test {
 protected:
  ResultFileProgram() {
    std::string text;
    for (std::int64_t i = 0; i < kPrompts; ++i) {
      text += i == 7 ? "{\"prompt\": \"\", \"id\": \"bad\"}\n"
                     : "{\"prompt\": \"In the beginning of " + std::to_string(i) + "\"}\n";
    }
    write_text(prompts_, text);
  }

  [[nodiscard]] Arguments generate_to(const std::string& out, const Arguments& more = {}) const {
    return joined(
        {"generate", "-m", kDemo, "-f", prompts_, "-n", "24", "-s", "5", "-t", "1", "--out", out},
        more);
  }
  [[nodiscard]] Arguments generate(const Arguments& more = {}) const {
    return generate_to(out_, more);
  }
  [[nodiscard]] std::string written() const {
    return std::filesystem::exists(out_) ? read_text(out_) : "";
  }
  /// The bytes that a run gives that is not stopped.
  [[nodiscard]] std::string whole() const {
    const std::string other = directory_.path_of("whole.jsonl");
    const ProgramResult result = run_ranks(2, generate_to(other));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    EXPECT_EQ(result.out, "");
    return read_text(other);
  }

  TemporaryDirectory directory_;
  std::string prompts_ = directory_.path_of("prompts.jsonl");
  std::string out_ = directory_.path_of("out.jsonl");
};

TEST_F(ResultFileProgram, RunsThatAreKilledAnywhereGiveTheBytesOfOneThatIsNot) {
  const std::string expected = whole();
  ASSERT_EQ(lines_of(expected).size(), 1U + kPrompts);
  EXPECT_NE(lines_of(expected)[8].find("\"error\": "), std::string::npos) << lines_of(expected)[8];
  EXPECT_NE(lines_of(expected)[8].find("\"id\": \"bad\""), std::string::npos);
  const std::vector<std::pair<int, std::size_t>> runs = {{1, 1}, {2, 40}, {3, 200}, {1, 300}};
  for (const auto& [ranks, lines] : runs) {
    RunningProgram program(ranks_command(ranks, generate()));
    program.wait_until([&, count = lines] { return lines_of(written()).size() > count; });
    program.send(SIGKILL);  // of mpirun: its ranks die with it
    static_cast<void>(program.wait());
    wait_until_nobody_writes(out_);
    EXPECT_TRUE(expected.starts_with(written())) << "after " << lines << " lines";
    write_text(out_, written() + expected.substr(written().size(), 20));  // cut short
  }
  const ProgramResult last = run_ranks(4, generate());
  EXPECT_EQ(last.exit_code, 0) << last.text();
  EXPECT_TRUE(written() == expected);
  const ProgramResult again = run_ranks(2, generate());
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.err.find("nothing is left to do: 400 of 400 texts"), std::string::npos)
      << again.text();
  EXPECT_TRUE(written() == expected);
}

TEST_F(ResultFileProgram, RunsThatAreAskedToStopGoOn) {
  const std::string expected = whole();
  const std::string stop = out_ + ".stop";
  for (const bool by_file : {true, false}) {
    const std::size_t before = lines_of(written()).size();
    RunningProgram program(moesaic_command(generate({"--parallel", "1"})));
    ASSERT_TRUE(program.wait_until([&] { return lines_of(written()).size() > before + 2; }));
    if (by_file) write_text(stop, "");
    if (!by_file) program.send(SIGTERM);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.exit_code, kStopped) << result.text();
    EXPECT_FALSE(std::filesystem::exists(stop));
    EXPECT_TRUE(expected.starts_with(written()));
    EXPECT_NE(result.err.find("of 400 texts are finished"), std::string::npos) << result.text();
  }
  EXPECT_EQ(run_moesaic(generate()).exit_code, 0);
  EXPECT_TRUE(written() == expected);
}

TEST_F(ResultFileProgram, UnorderedFilesHaveTheSameLines) {
  const auto sorted = [](const std::string& text) {
    std::vector<std::string> lines = lines_of(text);
    std::ranges::sort(lines);
    return lines;
  };
  const std::string expected = whole();
  EXPECT_EQ(run_ranks(3, generate({"--unordered"})).exit_code, 0);
  const std::string unordered = written();
  EXPECT_EQ(sorted(unordered), sorted(expected));
  write_text(out_, unordered.substr(0, unordered.size() * 2 / 3));
  EXPECT_EQ(run_moesaic(generate()).exit_code, 0);
  EXPECT_EQ(sorted(written()), sorted(expected));
}

TEST_F(ResultFileProgram, OtherRunsAreRefused) {
  ASSERT_EQ(run_moesaic(generate({"-n", "2"})).exit_code, 0);
  const std::string before = written();
  expect_failure(run_moesaic(generate({"-n", "3"})), 2, {out_, "--predict 2, not 3"});
  expect_failure(run_moesaic(generate({"-n", "2", "--temp", "0.3"})), 2, {out_, "--temp"});
  // What counts is compared: 0.7 is what the model's makers want, 0.8 the default of others.
  expect_failure(run_moesaic(generate({"-n", "2", "--temp", "0.8"})), 2,
                 {out_, "--temp 0.7, not 0.8"});
  EXPECT_EQ(run_moesaic(generate({"-n", "2", "--temp", "0.7"})).exit_code, 0);
  EXPECT_EQ(run_moesaic(generate({"-n", "2", "--parallel", "3", "-t", "1"})).exit_code, 0);
  const std::string model = directory_.path_of("model");
  copy_model("demo-model", model);
  EXPECT_EQ(run_moesaic(generate({"-n", "2", "-m", model})).exit_code, 0) << "the same elsewhere";
  std::string config = read_text(model + "/config.json");
  write_text(model + "/config.json", config + "\n");
  expect_failure(run_ranks(2, generate({"-n", "2", "-m", model})), 2, {out_, "another model"});
  write_text(prompts_, read_text(prompts_) + "{\"prompt\": \"And\"}\n");
  expect_failure(run_moesaic(generate({"-n", "2"})), 2, {out_, "other prompts"});
  EXPECT_TRUE(written() == before);
  for (const char* foreign : {"a letter\n", "no line", "{\"moesaic\": 3}\n", "\n"}) {
    write_text(out_, foreign);
    expect_failure(run_moesaic(generate()), 2, {out_, "no file of results"});
    EXPECT_EQ(written(), foreign);
  }
  expect_failure(run_moesaic(generate_to(directory_.path())), 4, {directory_.path()});
}

/// A program that goes on after bad prompts, and one that does not.
TEST(BadPrompts, AreTheirOwnRecordsAndDoNotStopTheRest) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts.jsonl");
  write_text(file,
             "\xEF\xBB\xBF{\"prompt\": \"In\"}\n\n{\"prompt\": \"\", \"id\": \"empty\"}\n"
             "{\"prompt\": \"In\", \"max_token\": 3, \"id\": 9}\n{\"prompt\": \"a\xC3\x28\"}\n"
             "{\"prompt\": \"And\", \"max_tokens\": 5000}\n{\"prompt\": \"And\"\n"
             "{\"prompt\": \"And\"}\n");
  const Arguments arguments = {"generate", "-m", kDemo, "-f", file, "-n", "3", "--json"};
  for (const int ranks : {1, 3}) {
    const ProgramResult result = run_ranks(ranks, arguments);
    ASSERT_EQ(result.exit_code, 0) << result.text();
    const std::vector<std::string> lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 8U) << result.text();
    const std::vector<std::pair<std::size_t, std::string>> errors = {{1, "line 3 is empty"},
                                                                     {2, "\"max_token\""},
                                                                     {3, "line 5 is not UTF-8"},
                                                                     {4, "exceed the context"},
                                                                     {5, "line 7"}};
    for (const auto& [index, error] : errors) {
      const Json record = Json::parse(lines[index], "record");
      EXPECT_EQ(record.at("index").as_int(), static_cast<std::int64_t>(index));
      EXPECT_NE(record.at("error").as_string().find(error), std::string::npos) << lines[index];
      EXPECT_FALSE(record.contains("text"));
    }
    EXPECT_EQ(Json::parse(lines[1], "record").at("id").as_string(), "empty");
    EXPECT_EQ(Json::parse(lines[2], "record").at("id").as_int(), 9);
    for (const std::size_t index : {0U, 6U}) {
      EXPECT_EQ(Json::parse(lines[index], "record").at("ids").size(), 3) << lines[index];
    }
    EXPECT_NE(result.err.find("5 of 7 prompts are not run"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("prompts.jsonl line 4"), std::string::npos) << result.err;
  }
  expect_failure(run_ranks(2, joined(arguments, {"--strict"})), 3, {"line 4", "max_token"});
  write_text(file, "one\xff\n\n \nthree\n");
  const ProgramResult text = run_moesaic({"generate", "-m", kDemo, "-f", file, "-n", "3"});
  EXPECT_EQ(text.exit_code, 0) << text.text();
  EXPECT_NE(text.out.find("--- prompt 1 of 2\n[" + file + " line 1 is not UTF-8]"),
            std::string::npos)
      << text.text();
  EXPECT_NE(text.out.find("--- prompt 2 of 2\nthree"), std::string::npos) << text.text();
}

TEST(BadPrompts, HaveTheirRecordsEvenIfNoneCanBeRun) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("bad.jsonl");
  write_text(file, "{\"prompt\": \"\", \"id\": 1}\n{\"prompt\": \"a\", \"id\": 2, \"n\": 0}\n");
  const Arguments arguments = {"generate", "-m", kDemo, "-f", file, "-n", "3"};
  for (const int ranks : {1, 2}) {
    const ProgramResult result = run_ranks(ranks, joined(arguments, {"--json"}));
    EXPECT_EQ(result.exit_code, 3) << result.text();
    EXPECT_EQ(result.error_lines(), 1) << result.err;
    const std::vector<std::string> lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 2U) << result.text();
    for (const std::int64_t index : {0, 1}) {
      const Json record = Json::parse(lines[static_cast<std::size_t>(index)], "record");
      EXPECT_EQ(record.at("id").as_int(), index + 1);
      EXPECT_TRUE(record.contains("error")) << result.out;
    }
  }
  const std::string out = directory.path_of("out.jsonl");
  for (const char* time : {"first", "again"}) {
    EXPECT_EQ(run_moesaic(joined(arguments, {"--out", out})).exit_code, 3) << time;
    EXPECT_EQ(lines_of(read_text(out)).size(), 3U) << time;
  }
}

TEST(Prompts, AWholeFileMayBeOne) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompt.txt");
  write_text(file, "\xEF\xBB\xBFIn the\n\nbeginning\r\n");
  const ProgramResult result =
      run_moesaic({"generate", "-m", kDemo, "-f", file, "--whole-file", "-n", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(Json::parse(lines_of(result.out).at(0), "line").at("prompt").as_string(),
            "In the\n\nbeginning");
}

TEST(Statistics, TheTimesOfBothPhasesAddUpToWhatAClockShows) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts.txt");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "In the beginning of " + std::to_string(i) + "\n";
  write_text(file, text);
  for (const int ranks : {1, 2}) {
    const ProgramResult result = run_ranks(ranks, {"generate", "-m", kDemo, "-f", file, "-n", "20",
                                                   "--json", "--ignore-eos", "--parallel", "64"});
    ASSERT_EQ(result.exit_code, 0) << result.text();
    const Json statistics = Json::parse(lines_of(result.out).back(), "statistics").at("statistics");
    const Json prompt = statistics.at("prompt");
    const Json generation = statistics.at("generation");
    const double wall = statistics.at("wall_seconds").as_double();
    const double sum = prompt.at("seconds").as_double() + generation.at("seconds").as_double();
    EXPECT_NEAR(sum, wall, 1e-6 * wall) << "a step begins where the one before has ended";
    EXPECT_EQ(generation.at("tokens").as_int(), 300 * 19) << "first ones count to the prompt";
    for (const Json& phase : {prompt, generation}) {
      EXPECT_NEAR(phase.at("tokens_per_second").as_double() * phase.at("seconds").as_double(),
                  static_cast<double>(phase.at("tokens").as_int()), 1e-3);
    }
  }
}

}  // namespace
}  // namespace moesaic::test
