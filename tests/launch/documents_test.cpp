// What README.md, configs/ and slurm/ tell users to write is what the program takes.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "launch/options/option_table.h"
#include "launch/options/options.h"
#include "launch/study/study_points.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

const std::string kRoot = std::string(MOESAIC_TEST_DATA) + "/../..";

/// The words of a command as a shell sees them: quotes around some, and no comment.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  bool quoted = false;
  bool open = false;  // a word has begun
  for (const char c : line) {
    if (!quoted && !open && c == '#') break;
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    open = true;
    if (c != '"') words.back() += c;
  }
  return words;
}

/// The arguments of each line of a document that starts moesaic.
std::vector<std::vector<std::string>> commands_in(const std::string& document) {
  std::vector<std::vector<std::string>> commands;
  std::istringstream lines(test::read_text(kRoot + "/" + document));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = shell_words(line);
    const auto program = std::ranges::find(words, "moesaic");
    const bool starts = program == words.begin() ||
                        (program != words.end() && (words[0] == "mpirun" || words[0] == "srun"));
    if (starts && line.starts_with("    ")) commands.emplace_back(program + 1, words.end());
  }
  return commands;
}

/// README's commands are typed in the root of the repository.
class InRoot {
 public:
  InRoot() { fs::current_path(kRoot); }
  ~InRoot() { fs::current_path(before_); }
  InRoot(const InRoot&) = delete;
  InRoot& operator=(const InRoot&) = delete;

 private:
  fs::path before_ = fs::current_path();
};

TEST(Documents, ReadmeShowsCommandsThatTheProgramTakes) {
  const InRoot in_root;
  std::vector<bool> shown(verb_table().size());
  for (const std::vector<std::string>& arguments : commands_in("README.md")) {
    Command command;
    EXPECT_NO_THROW(command = parse_command(arguments, {})) << testing::PrintToString(arguments);
    EXPECT_TRUE(command.notes.empty());
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (verb_table()[i].verb == command.verb) shown[i] = true;
    }
  }
  for (std::size_t i = 0; i < shown.size(); ++i) {
    EXPECT_TRUE(shown[i]) << "README does not show moesaic " << verb_table()[i].name;
  }
}

TEST(Documents, ExamplesOfConfigFilesAreTaken) {
  const InRoot in_root;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kRoot + "/configs")) {
    if (entry.path().extension() != ".ini") continue;
    ++count;
    const std::string file = entry.path().string();
    if (entry.path().filename().string().starts_with("study-")) {
      EXPECT_EQ(study_points(read_study(file), {}).size(), 18U) << file;
      continue;
    }
    Command command;
    EXPECT_NO_THROW(command =
                        parse_command(std::vector<std::string>{"generate", "--config", file}, {}));
    EXPECT_NE(std::ranges::find(command.sources, OptionSource::file), command.sources.end())
        << file;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace moesaic
