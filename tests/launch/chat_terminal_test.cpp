// `moesaic chat` as a person at a terminal sees it.

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tests/launch/terminal.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kCtrlC = "\x03";
const std::string kCtrlD = "\x04";
const std::string kUp = "\x1b[A";
const std::string kPrompt = ">";
const std::string kGreenPrompt = "\x1b[1;32m>\x1b[0m ";

class ChatTerminal : public testing::Test {
 protected:
  /// A conversation with the demo model, at its first prompt.
  [[nodiscard]] std::unique_ptr<Terminal> start(const Arguments& more = {},
                                                const Variables& variables = {},
                                                const std::string& output_file = "") const {
    Variables all = {{"TERM", "xterm"},
                     {"HOME", home.path()},
                     {"XDG_STATE_HOME", ""},
                     {"LC_ALL", "C"},  // characters are UTF-8 all the same
                     {"NO_COLOR", ""}};
    for (const auto& [name, value] : variables) all[name] = value;
    auto terminal = std::make_unique<Terminal>(
        moesaic_command(joined({"chat", "-m", kDemo, "--temp", "0"}, more)), all, output_file);
    terminal->wait_for("/help lists commands");
    terminal->wait_for(kPrompt);
    return terminal;
  }
  /// Ends it by the ordinary way.
  static void leave(Terminal& terminal) {
    terminal.type(kCtrlD);
    EXPECT_EQ(terminal.wait_for_end(), 0) << terminal.shown();
  }

  TemporaryDirectory home;
};

TEST_F(ChatTerminal, a_process_alone_has_no_daemon_unless_one_is_asked_for) {
  for (const std::string without : {"", "0"}) {
    const TemporaryDirectory directory;
    const auto terminal =
        start({}, {{"OMPI_MCA_ess_singleton_isolated", without}, {"TMPDIR", directory.path()}});
    const std::string id = std::to_string(terminal->process());
    std::ifstream children("/proc/" + id + "/task/" + id + "/children");
    const bool has_child = std::istream_iterator<int>(children) != std::istream_iterator<int>();
    EXPECT_EQ(has_child, without == "0");
    EXPECT_EQ(std::filesystem::is_empty(directory.path()), without != "0")
        << "a folder that all such processes share";
    leave(*terminal);
  }
}

TEST_F(ChatTerminal, an_answer_is_seen_while_it_comes_and_ctrl_c_stops_it_alone) {
  const auto terminal = start({"--ignore-eos", "--isa", "scalar"});
  terminal->type("And what said the king?\n");
  terminal->wait_for("king?\r\n");
  terminal->wait_for_bytes(40);  // of 2000 tokens
  terminal->type(kCtrlC);
  terminal->wait_for("(stopped)");
  terminal->wait_for(kPrompt);
  terminal->type("/stats\n");
  terminal->wait_for("last answer: prompt ");
  terminal->wait_for(kPrompt);
  terminal->type("Who heard it?\n");
  terminal->wait_for("heard it?\r\n");
  terminal->wait_for_bytes(40);
  terminal->type(kCtrlC);
  terminal->wait_for("(stopped)");
  terminal->wait_for(kPrompt);
  leave(*terminal);
  EXPECT_NE(terminal->shown().find("2 answers: prompt "), std::string::npos);
}

TEST_F(ChatTerminal, ctrl_c_at_the_prompt_forgets_the_line_and_the_second_one_ends) {
  const auto terminal = start();
  terminal->type("/system never" + kCtrlC);
  terminal->wait_for("Ctrl-C once more ends the program");
  terminal->wait_for(kPrompt);
  terminal->type("/system\n");
  terminal->wait_for("there is no system prompt");
  terminal->wait_for(kPrompt);
  terminal->type(kCtrlC);
  terminal->wait_for("once more");
  terminal->wait_for(kPrompt);
  terminal->type(kCtrlC);
  EXPECT_EQ(terminal->wait_for_end(), 0) << terminal->shown();
}

TEST_F(ChatTerminal, lines_are_edited_and_come_back_in_the_next_conversation) {
  const std::string all = "Grüße, 世界";
  {
    const auto terminal = start();
    terminal->type("/systex\x7fm " + all + "\n");
    terminal->wait_for(kPrompt);
    terminal->type("/system\n");
    terminal->wait_for("\r\n");
    EXPECT_NE(terminal->wait_for(kPrompt).find(all), std::string::npos) << terminal->shown();
    leave(*terminal);
  }
  const auto terminal = start();
  terminal->type(kUp + kUp + "\n");
  terminal->wait_for("\r\n");
  terminal->wait_for(kPrompt);
  terminal->type("/system\n");
  terminal->wait_for("\r\n");
  EXPECT_NE(terminal->wait_for(kPrompt).find(all), std::string::npos) << terminal->shown();
  leave(*terminal);
}

TEST_F(ChatTerminal, history_is_kept_where_it_is_asked_for_or_nowhere) {
  const auto say = [&](const Arguments& more) {
    const auto terminal = start(more);
    terminal->type("/system a text to keep\n");
    terminal->wait_for(kPrompt);
    leave(*terminal);
  };
  say({"--history", ""});
  EXPECT_FALSE(std::filesystem::exists(home.path_of(".local")));
  say({"--history", home.path_of("mine")});
  EXPECT_FALSE(std::filesystem::exists(home.path_of(".local")));
  EXPECT_NE(read_text(home.path_of("mine")).find("keep"), std::string::npos);
}

TEST_F(ChatTerminal, texts_have_several_lines) {
  const auto terminal = start();
  terminal->type("/system one\\\n");
  terminal->wait_for(". ");
  terminal->type("two\n");
  terminal->wait_for(kPrompt);
  terminal->type("/system\n");
  terminal->wait_for("one\r\ntwo");
  terminal->wait_for(kPrompt);
  terminal->type("\"\"\"\n");
  terminal->wait_for(". ");
  terminal->type("/no command\n");
  terminal->wait_for(". ");
  terminal->type("at all\"\"\"\n");
  terminal->wait_for(kPrompt);
  terminal->type("/save " + home.path_of("c.jsonl") + "\n");
  terminal->wait_for(": 3 messages");
  terminal->wait_for(kPrompt);
  leave(*terminal);
  EXPECT_NE(read_text(home.path_of("c.jsonl")).find(R"("/no command\nat all")"), std::string::npos);
}

TEST_F(ChatTerminal, colours_are_there_where_they_are_seen_and_wanted) {
  const auto shown = [&](const Arguments& more, const Variables& variables) {
    const auto terminal = start(more, variables);
    leave(*terminal);
    return terminal->shown();
  };
  EXPECT_NE(shown({}, {}).find(kGreenPrompt), std::string::npos);
  EXPECT_EQ(shown({}, {{"NO_COLOR", "1"}}).find("\x1b[1"), std::string::npos);
  EXPECT_EQ(shown({}, {{"TERM", "dumb"}}).find("\x1b[1"), std::string::npos);
  EXPECT_EQ(shown({"--color", "off"}, {}).find("\x1b[1"), std::string::npos);
  EXPECT_NE(shown({"--color", "on"}, {{"TERM", "dumb"}}).find(kGreenPrompt), std::string::npos);
}

TEST_F(ChatTerminal, a_file_gets_the_answers_alone) {
  const std::string file = home.path_of("out.txt");
  const auto terminal = start({"-n", "8"}, {}, file);
  terminal->type("And what said the king?\n");
  terminal->wait_for("(cut off by --predict)");
  terminal->wait_for(kPrompt);
  leave(*terminal);
  const std::string answers = read_text(file);
  EXPECT_GT(answers.size(), 8U);
  EXPECT_EQ(answers.find_first_of("\x1b>\r"), std::string::npos) << answers;
  EXPECT_TRUE(answers.ends_with('\n'));
  EXPECT_EQ(terminal->shown().find("\x1b[1"), std::string::npos);
}

TEST_F(ChatTerminal, a_signal_ends_it_with_exit_code_6_in_an_answer_and_at_the_prompt) {
  const auto terminal = start({"--ignore-eos", "--isa", "scalar"});
  terminal->type("Who?\n");
  terminal->wait_for("Who?\r\n");
  terminal->wait_for_bytes(20);
  kill(terminal->process(), SIGTERM);
  EXPECT_EQ(terminal->wait_for_end(), 6) << terminal->shown();
  EXPECT_NE(terminal->shown().find("interrupted (SIGTERM)"), std::string::npos);
  const auto waiting = start();
  kill(waiting->process(), SIGTERM);
  EXPECT_EQ(waiting->wait_for_end(), 6) << waiting->shown();
}

TEST_F(ChatTerminal, a_bar_shows_how_far_a_long_question_has_come) {
  std::string long_question;
  for (int i = 0; i < 250; ++i) long_question += "And it came to pass. ";
  const auto terminal = start({"-b", "1", "--isa", "scalar", "-n", "4"});
  write_text(home.path_of("q.jsonl"),
             R"({"messages": [{"role": "user", "content": ")" + long_question + R"("}]})");
  terminal->type("/load " + home.path_of("q.jsonl") + "\n");
  terminal->wait_for(": 1 message");
  terminal->wait_for(kPrompt);
  terminal->type("/retry\n");
  terminal->wait_for("\r\x1b[Kprompt [");
  terminal->wait_for("cut off by --predict");
  terminal->wait_for(kPrompt);  // what is typed before it may be lost
  leave(*terminal);
}

}  // namespace
}  // namespace moesaic::test
