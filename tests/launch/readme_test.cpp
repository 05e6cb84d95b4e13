// Every command that README.md and docs/chat.md show is run as it stands there, by a shell, with
// the demo model for DIR; only how long it works is cut down, through the environment.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

const std::string kRoot = kData + "/../..";

/// Indented lines of a document that `is_wanted`.
std::vector<std::string> shown_lines(const std::string& document,
                                     const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<std::string> lines;
  std::istringstream text(read_text(kRoot + "/" + document));
  for (std::string line; std::getline(text, line);) {
    const bool is_shown = line.starts_with("    ");
    if (is_shown && is_wanted(line.substr(4))) lines.push_back(line.substr(4));
  }
  return lines;
}

bool starts_moesaic(const std::string& line) {
  return line.starts_with("moesaic ") ||
         (line.starts_with("mpirun ") && line.find(" moesaic ") < line.find('#'));
}

bool is_server(const std::string& line) {
  return line.find(" serve ") < line.find('#');
}

/// Where a reader is: DIR is a model, files that commands read are there.
class Desk {
 public:
  Desk() {
    fs::create_symlink(fs::absolute(kDemo), directory_.path_of("DIR"));
    fs::create_symlink(fs::absolute(kRoot + "/configs"), directory_.path_of("configs"));
    fs::create_symlink(fs::absolute(kRoot + "/tests"), directory_.path_of("tests"));
    put("prompts.txt", "In the beginning\nAnd the LORD said\n");
    put("questions.txt", "And what said the king?\nWho heard it?\n");
    put("book.txt", "In the beginning God created the heaven and the earth.\n");
    put("requests.jsonl", R"({"prompt": "In the beginning", "max_tokens": 4, "id": 1})"
                          "\n");
    put("pairs.jsonl", R"({"context": "In the beginning", "continuation": " God"})"
                       "\n");
    put("chats.jsonl", R"({"messages": [{"role": "user", "content": "Who?"}]})"
                       "\n");
    std::string samples;
    for (int i = 0; i < 8; ++i) {
      samples += R"({"messages": [{"role": "user", "content": "Who?"}, )"
                 R"({"role": "assistant", "content": "God."}]})"
                 "\n";
    }
    put("train.jsonl", samples);
  }

  [[nodiscard]] ProgramResult run(const std::string& line) const {
    const std::string path = fs::path(MOESAIC_PROGRAM).parent_path().string();
    Variables variables = {
        {"MOESAIC_PREDICT", "8"},       {"MOESAIC_N_PROMPT", "8"}, {"MOESAIC_N_GEN", "4"},
        {"MOESAIC_REPETITIONS", "1"},   {"MOESAIC_SECONDS", "0"},  {"MOESAIC_SHAPES", "64x128"},
        {"MOESAIC_LAYER", "8,64,64,2"}, {"MOESAIC_ROWS", "4"},     {"MOESAIC_TOKENS", "4"},
        {"MOESAIC_FOOTPRINT", "16M"},   {"MOESAIC_POINT", "1"},    {"MOESAIC_CTX_SIZE", "256"},
        {"MOESAIC_MAX_STEPS", "2"}};
    if (is_server(line)) {
      variables["MOESAIC_MAX_TIME"] = "5s";
      variables["MOESAIC_PORT"] = "0";
    }
    // Somebody types questions, to commands that ask.
    const std::string script = "cd '" + directory_.path() + "' && PATH='" + path +
                               ":'\"$PATH\" && (\n" + line + "\n) < questions.txt";
    constexpr double kLongest = 900;  // doctor --measure, on a slow machine that is busy
    return run_program({"sh", "-c", script}, variables, kLongest);
  }

  /// Takes away what the commands before have made.
  void clear() const {
    for (const char* name : {"OUT", "PACKED"}) fs::remove_all(directory_.path_of(name));
  }
  [[nodiscard]] std::int64_t count_files() const { return num_files(directory_.path()); }

 private:
  void put(const std::string& name, const std::string& text) const {
    write_text(directory_.path_of(name), text);
  }
  TemporaryDirectory directory_;
};

class Shown : public testing::TestWithParam<const char*> {};

TEST_P(Shown, commands_do_what_they_are_shown_for) {
  const Desk desk;
  const std::vector<std::string> lines = shown_lines(GetParam(), starts_moesaic);
  EXPECT_GE(lines.size(), 4U);
  for (const std::string& line : lines) {
    desk.clear();
    const std::int64_t files = desk.count_files();
    const ProgramResult result = desk.run(line);
    const bool lacks_rival = line.find("--rival") != std::string::npos && result.exit_code == 2;
    if (lacks_rival) {
      EXPECT_NE(result.err.find("libdnnl"), std::string::npos) << line << "\n" << result.text();
      continue;
    }
    if (line.find("study predict") != std::string::npos) {  // one point was measured here
      EXPECT_EQ(result.exit_code, 2) << line << "\n" << result.text();
      EXPECT_NE(result.err.find("too few"), std::string::npos) << result.text();
      continue;
    }
    if (line.find("study export smpi") != std::string::npos) {  // and so nothing was predicted
      EXPECT_EQ(result.exit_code, 2) << line << "\n" << result.text();
      EXPECT_NE(result.err.find("moesaic study predict"), std::string::npos) << result.text();
      continue;
    }
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.text();
    EXPECT_EQ(result.error_lines(), 0) << line << "\n" << result.text();
    if (is_server(line)) {
      EXPECT_NE(result.err.find("stopped"), std::string::npos) << line << "\n" << result.text();
      continue;
    }
    EXPECT_TRUE(!result.out.empty() || desk.count_files() > files)
        << "nothing comes of " << line << "\n"
        << result.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Documents, Shown, testing::Values("README.md", "docs/chat.md"));

TEST(Readme, scripts_and_presets_that_it_names_are_there) {
  const auto is_script = [](const std::string& line) {
    return !starts_moesaic(line) && !line.starts_with("export ");
  };
  int count = 0;
  for (const std::string& line : shown_lines("README.md", is_script)) {
    ++count;
    if (line.starts_with("python ")) {
      EXPECT_TRUE(std::filesystem::exists(kRoot + "/" + line.substr(7, line.find(' ', 7) - 7)))
          << line;
      continue;
    }
    const std::string command = line.starts_with("cmake ")
                                    ? "cmake --list-presets | grep -q '\"release\"'"
                                    : "test -x \"$(echo '" + line + "' | cut -d' ' -f1)\" && " +
                                          "bash -n \"$(echo '" + line + "' | cut -d' ' -f1)\"";
    const ProgramResult result = run_program({"sh", "-c", "cd '" + kRoot + "' && " + command});
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.text();
  }
  EXPECT_EQ(count, 5);
}

}  // namespace
}  // namespace moesaic::test
