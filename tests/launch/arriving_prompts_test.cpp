// Prompts of a standard input that stays open: each is answered before the next one comes.

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

constexpr int kInterrupted = 6;

/// A pipe that a program reads as its standard input.
class OpenInput {
 public:
  OpenInput() {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);  // waits for no reader
  }
  ~OpenInput() { end(); }
  OpenInput(const OpenInput&) = delete;
  OpenInput& operator=(const OpenInput&) = delete;

  [[nodiscard]] Arguments read_by(const Arguments& command) const {
    return joined({"sh", "-c", "exec \"$@\" < '" + path_ + "'", "sh"}, command);
  }
  void give(const std::string& text) const {
    EXPECT_EQ(write(descriptor_, text.data(), text.size()), std::ssize(text));
  }
  void end() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }

 private:
  TemporaryDirectory directory_;
  std::string path_ = directory_.path_of("pipe");
  int descriptor_ = -1;
};

Arguments generate_lines(int ranks, const Arguments& more = {}) {
  const Arguments all = joined({"generate", "-m", kDemo, "-f", "-", "-n", "6", "-s", "5"}, more);
  return ranks == 1 ? moesaic_command(all) : ranks_command(ranks, all);
}

std::string line_number(int number) {
  return fmt::format("{{\"prompt\": \"In the beginning of {}\"}}\n", number);
}

std::vector<std::string> without_statistics(std::vector<std::string> lines) {
  if (!lines.empty() && lines.back().starts_with("{\"statistics\"")) lines.pop_back();
  return lines;
}

TEST(ArrivingPrompts, EachIsAnsweredWhileTheInputIsOpenAndAsOneOfAFile) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts");
  write_text(file, line_number(0) + line_number(1) + line_number(2));
  const ProgramResult whole =
      run_moesaic({"generate", "-m", kDemo, "-f", file, "-n", "6", "-s", "5", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  for (const int ranks : {1, 2}) {
    OpenInput input;
    RunningProgram program(input.read_by(generate_lines(ranks, {"--json"})));
    for (int i = 0; i < 3; ++i) {
      input.give(line_number(i));
      ASSERT_TRUE(program.wait_until([&] { return std::ssize(lines_of(program.out())) == i + 1; }))
          << program.err();
    }
    input.end();
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.exit_code, 0) << result.text();
    EXPECT_EQ(without_statistics(lines_of(result.out)), without_statistics(lines_of(whole.out)));
    EXPECT_TRUE(lines_of(result.out).back().starts_with("{\"statistics\"")) << result.out;
  }
}

TEST(ArrivingPrompts, TextsOfAFileGoOnWhereTheyWereAndOtherLinesAreRefused) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("texts.jsonl");
  const std::string expected = directory.path_of("whole.jsonl");
  const std::string lines = line_number(0) + "{}\n" + line_number(2) + line_number(3);
  const auto run = [&](int ranks, const std::string& file, const std::string& input) {
    return run_with_input(generate_lines(ranks, {"--out", file}), input);
  };
  ASSERT_EQ(run(2, expected, lines).exit_code, 0);
  ASSERT_EQ(lines_of(read_text(expected)).size(), 5U);
  {
    OpenInput input;
    RunningProgram program(input.read_by(generate_lines(1, {"--out", out, "--unordered"})));
    input.give(line_number(0));
    ASSERT_TRUE(program.wait_until(
        [&] { return std::filesystem::exists(out) && lines_of(read_text(out)).size() == 2; }));
    input.give("{}\n");
    ASSERT_TRUE(program.wait_until([&] { return lines_of(read_text(out)).size() == 3; }));
    program.send(SIGKILL);
  }
  EXPECT_TRUE(read_text(expected).starts_with(read_text(out))) << read_text(out);
  expect_failure(run(1, out, line_number(0) + line_number(1)), 2,
                 {out, "other prompts", "the standard input line 2"});
  EXPECT_EQ(run(3, out, lines).exit_code, 0);
  EXPECT_EQ(read_text(out), read_text(expected));
}

TEST(ArrivingPrompts, TextsOfAnotherTemplateOrSystemPromptAreRefused) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("texts.jsonl");
  const std::string other = directory.path_of("other.jinja");
  write_text(other, "{{ messages[0].content }}.");
  const auto run = [&](const Arguments& more) {
    return run_with_input(generate_lines(1, joined({"--chat", "--out", out}, more)),
                          line_number(0));
  };
  ASSERT_EQ(run({"--system-prompt", "Be brief"}).exit_code, 0);
  const std::string before = read_text(out);
  EXPECT_EQ(run({"--system-prompt", "Be brief"}).exit_code, 0);
  expect_failure(run({"--system-prompt", "Be long"}), 2,
                 {out, "--system-prompt Be brief, not Be long"});
  expect_failure(run({"--system-prompt", "Be brief", "--chat-template", other}), 2,
                 {out, "--chat-template"});
  EXPECT_EQ(read_text(out), before);
}

TEST(ArrivingPrompts, ASignalEndsThoseWhoWait) {
  for (const int ranks : {1, 2}) {
    OpenInput input;
    RunningProgram program(input.read_by(generate_lines(ranks, {"--json"})));
    input.give(line_number(0));
    ASSERT_TRUE(program.wait_until([&] { return lines_of(program.out()).size() == 1; }));
    program.send(SIGUSR1);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.exit_code, kInterrupted) << result.text();
    EXPECT_NE(result.err.find("1 of 1 texts are finished"), std::string::npos) << result.text();
    EXPECT_EQ(lines_of(result.out).size(), 2U) << "and statistics: " << result.text();
  }
}

TEST(ArrivingPrompts, BadOnesAreToldOrEndTheRun) {
  const std::string bad = "{\"prompt\": \"And\", \"max_tokens\": 5000}\n";
  const ProgramResult kept =
      run_with_input(generate_lines(2), "\xEF\xBB\xBF" + line_number(0) + "\n" + bad);
  EXPECT_EQ(kept.exit_code, 0) << kept.text();
  EXPECT_TRUE(kept.out.starts_with("--- prompt 1\nIn the beginning of 0")) << kept.out;
  EXPECT_NE(kept.out.find("\n--- prompt 2\n[the standard input line 3: "), std::string::npos)
      << kept.out;
  EXPECT_NE(kept.err.find("1 of 2 prompts is not run"), std::string::npos) << kept.err;
  expect_failure(run_with_input(generate_lines(2, {"--strict"}), line_number(0) + bad), 2,
                 {"line 2", "exceed the context"});
  expect_failure(run_with_input(generate_lines(1), bad), 2, {"line 1", "exceed the context"});
  expect_failure(run_with_input(generate_lines(1), ""), 3, {"the standard input holds no prompt"});
  const std::string nul("a\0b\n", 4);
  expect_failure(run_with_input(generate_lines(1), nul), 3, {"line 1 is no text: it has a NUL"});
  const ProgramResult others =
      run_with_input(generate_lines(2), line_number(0) + nul + line_number(1));
  EXPECT_EQ(others.exit_code, 0) << others.text();
  EXPECT_NE(others.out.find("In the beginning of 1"), std::string::npos) << others.out;
}

TEST(ArrivingPrompts, LinesThatAreNotRunKeepNobodyWaiting) {
  const Arguments command = generate_lines(2, {"--max-time", "1s", "--timeout", "20"});
  for (const std::string line : {"{\"prompt\": 1}", ""}) {  // for ever
    const ProgramResult stopped =
        run_program(joined({"sh", "-c", "yes '" + line + "' | exec \"$@\"", "sh"}, command));
    EXPECT_EQ(stopped.exit_code, 6) << stopped.err.substr(0, 1000);
  }
}

}  // namespace
}  // namespace moesaic::test
