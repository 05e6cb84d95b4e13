// `moesaic generate` as a person at a terminal sees it.

#include <gtest/gtest.h>

#include "tests/launch/terminal.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const Variables kXterm = {{"TERM", "xterm"}};

TEST(GenerateTerminal, a_text_is_seen_while_it_comes_and_ctrl_c_ends_it) {
  Terminal terminal(moesaic_command({"generate", "-m", kDemo, "-p", "In the beginning", "-n", "-1",
                                     "--ignore-eos", "--temp", "0", "--isa", "scalar"}),
                    kXterm);
  terminal.wait_for("In the beginning");
  terminal.wait_for_bytes(40);  // of 2000 tokens
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait_for_end(), 6) << terminal.shown();
  EXPECT_NE(terminal.shown().find("interrupted (SIGINT)"), std::string::npos);
  const std::size_t text = terminal.shown().find("In the beginning");  // loading may have a bar
  EXPECT_EQ(terminal.shown().find('\x1b', text), std::string::npos) << "no colours, and no bar";
}

TEST(GenerateTerminal, a_bar_shows_how_far_a_file_of_prompts_has_come) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts.txt");
  std::string prompts;
  for (int i = 0; i < 40; ++i) prompts += "In the beginning\n";
  write_text(file, prompts);
  const Arguments command =
      moesaic_command({"generate", "-m", kDemo, "-f", file, "-n", "60", "--json", "--ignore-eos",
                       "--isa", "scalar", "-t", "1"});
  const std::string output = directory.path_of("out.jsonl");
  Terminal terminal(command, kXterm, output);
  terminal.wait_for("\r\x1b[Ktokens [");
  terminal.wait_for(" s left");
  EXPECT_EQ(terminal.wait_for_end(), 0) << terminal.shown();
  EXPECT_NE(terminal.shown().rfind("\r\x1b[K"), std::string::npos);
  EXPECT_EQ(lines_of(read_text(output)).size(), 41U);
  EXPECT_EQ(read_text(output).find('\x1b'), std::string::npos);
  const ProgramResult elsewhere = run_program(command);
  EXPECT_EQ(elsewhere.exit_code, 0) << elsewhere.text();
  EXPECT_EQ(elsewhere.err.find_first_of("\r\x1b"), std::string::npos) << elsewhere.err;
}

}  // namespace
}  // namespace moesaic::test
