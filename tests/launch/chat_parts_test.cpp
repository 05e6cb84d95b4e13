// The parts of `moesaic chat` that need no model: lines, messages, commands, files.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <thread>

#include "base/error.h"
#include "launch/chat/chat_command.h"
#include "launch/chat/chat_file.h"
#include "launch/chat/line_source.h"
#include "launch/chat/message_reader.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Kind = Line::Kind;

class GivenLines : public LineSource {
 public:
  explicit GivenLines(std::deque<Line> lines) : lines_(std::move(lines)) {}
  Line read(const std::string& prompt) override {
    prompts += prompt;
    if (lines_.empty()) return {};
    Line line = lines_.front();
    lines_.pop_front();
    return line;
  }
  void remember(const std::string& message) override { remembered.push_back(message); }

  std::string prompts;
  std::vector<std::string> remembered;

 private:
  std::deque<Line> lines_;
};

/// What a reader makes of some lines: "[text]" each, "[\"text\"]" if it was quoted, "^C" and "end".
std::string messages_of(const std::vector<std::string>& lines) {
  std::deque<Line> given;
  for (const std::string& line : lines) {
    given.push_back(line == "^C" ? Line{Kind::interrupted, ""} : Line{Kind::text, line});
  }
  GivenLines source(std::move(given));
  MessageReader reader(source, "> ");
  std::string all;
  while (true) {
    const Message message = reader.read();
    if (message.kind == Kind::end) return all + "end";
    if (message.kind == Kind::interrupted) {
      all += "^C ";
    } else {
      all += message.is_quoted ? "[\"" + message.text + "\"] " : "[" + message.text + "] ";
    }
  }
}

TEST(MessageReader, joins_the_lines_of_a_message) {
  EXPECT_EQ(messages_of({"one", "two"}), "[one] [two] end");
  EXPECT_EQ(messages_of({"", " \t", "one"}), "[one] end");
  EXPECT_EQ(messages_of({"one\\", " two\\", "three", "four"}), "[one\n two\nthree] [four] end");
  EXPECT_EQ(messages_of({"one\\"}), "[one\n] end");
  EXPECT_EQ(messages_of({"\"\"\"", "/one", "", "two", "\"\"\"", "x"}), "[\"/one\n\ntwo\"] [x] end");
  EXPECT_EQ(messages_of({"\"\"\"one", "two\"\"\" "}), "[\"one\ntwo\"] end");
  EXPECT_EQ(messages_of({"\"\"\"one\"\"\""}), "[\"one\"] end");
  EXPECT_EQ(messages_of({"\"\"\"one \\", "two"}), "[\"one \\\ntwo\"] end");
  EXPECT_EQ(messages_of({"one\\", "^C", "two"}), "^C [two] end");
  EXPECT_EQ(messages_of({"\"\"\"one", "^C", "two"}), "^C [two] end");
  EXPECT_EQ(messages_of({"say \"\"\" to me"}), "[say \"\"\" to me] end");
}

TEST(MessageReader, asks_and_remembers) {
  GivenLines source({{Kind::text, "one\\"}, {Kind::text, "two"}, {Kind::text, ""}});
  MessageReader reader(source, "> ");
  (void)reader.read();
  (void)reader.read();
  EXPECT_EQ(source.prompts, "> . > > ");
  EXPECT_EQ(source.remembered, std::vector<std::string>{"one\ntwo"});
}

TEST(MessageReader, what_it_remembers_is_the_same_message_again) {
  GivenLines source(
      {{Kind::text, "\"\"\""}, {Kind::text, "/exit"}, {Kind::text, "now"}, {Kind::text, "\"\"\""}});
  MessageReader reader(source, "> ");
  const Message message = reader.read();
  EXPECT_TRUE(message.is_quoted);
  ASSERT_EQ(source.remembered.size(), 1U);
  GivenLines recalled({{Kind::text, source.remembered.front()}});
  MessageReader second(recalled, "> ");
  const Message again = second.read();
  EXPECT_TRUE(again.is_quoted);
  EXPECT_EQ(again.text, message.text);
}

TEST(ChatCommand, is_a_slash_and_a_word) {
  using Command = ChatCommand::Kind;
  const auto kind = [](const std::string& text) { return parse_chat_command(text)->kind; };
  EXPECT_EQ(kind("/retry"), Command::retry);
  EXPECT_EQ(kind("/quit "), Command::exit);
  EXPECT_EQ(kind("/?"), Command::help);
  EXPECT_EQ(parse_chat_command("/system  Be \"brief\".\nAnd kind. ")->argument,
            "Be \"brief\".\nAnd kind.");
  EXPECT_EQ(parse_chat_command("/system")->argument, "");
  EXPECT_FALSE(parse_chat_command("retry"));
  EXPECT_FALSE(parse_chat_command("/etc/passwd is what?"));
  EXPECT_FALSE(parse_chat_command("/ 2"));
  EXPECT_FALSE(parse_chat_command("//"));
  for (const char* wrong : {"/resett", "/xyzzy", "/undo it"}) {
    EXPECT_THROW((void)parse_chat_command(wrong), Error) << wrong;
  }
  try {
    (void)parse_chat_command("/rtry");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean /retry?"), std::string::npos);
  }
  for (const char* name : {"/reset", "/undo", "/retry", "/system", "/save", "/load", "/stats"}) {
    EXPECT_NE(chat_help().find(name), std::string::npos) << name;
    EXPECT_TRUE(parse_chat_command(name)) << name;
  }
}

/// A pipe, whose reading end lines come from.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends.data()), 0); }
  ~Pipe() {
    close(ends[0]);
    end();
  }
  void say(const std::string& text) const {
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  std::array<int, 2> ends{};
};

TEST(PlainLines, gives_the_lines_of_a_pipe) {
  Pipe pipe;
  PlainLines lines(pipe.ends[0], {}, false);
  pipe.say("one\r\ntw");
  EXPECT_EQ(lines.read("> ").text, "one");
  std::thread writer([&] {
    pipe.say("o\n\n");
    pipe.say("three");
    pipe.end();
  });
  EXPECT_EQ(lines.read("> ").text, "two");
  EXPECT_EQ(lines.read("> ").text, "");
  EXPECT_EQ(lines.read("> ").text, "three");
  EXPECT_EQ(lines.read("> ").kind, Kind::end);
  EXPECT_EQ(lines.read("> ").kind, Kind::end);
  writer.join();
}

TEST(PlainLines, work_goes_on_while_nothing_comes) {
  Pipe pipe;
  int idle = 0;
  const Waiting waiting{.on_idle =
                            [&] {
                              if (++idle == 3) pipe.say("late\n");
                            },
                        .idle_every = std::chrono::milliseconds(1)};
  PlainLines lines(pipe.ends[0], waiting, false);
  EXPECT_EQ(lines.read("> ").text, "late");
  EXPECT_EQ(idle, 3);
}

TEST(PlainLines, a_signal_or_the_end_of_all_is_no_line) {
  Pipe pipe;
  bool interrupted = true;
  bool over = false;
  const Waiting waiting{.is_interrupted = [&] { return interrupted; },
                        .is_over = [&] { return over; }};
  PlainLines lines(pipe.ends[0], waiting, false);
  EXPECT_EQ(lines.read("> ").kind, Kind::interrupted);
  interrupted = false;
  over = true;
  EXPECT_EQ(lines.read("> ").kind, Kind::end);
  over = false;
  pipe.say("one\n");
  EXPECT_EQ(lines.read("> ").text, "one");
}

TEST(ChatFile, keeps_a_conversation_and_replaces_nobody_elses) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("c.jsonl");
  Conversation conversation;
  conversation.ask("Wer?");
  save_conversation(conversation, path, false);
  EXPECT_EQ(read_conversation(path).json(), conversation.json());
  conversation.answer("Ich.");
  EXPECT_THROW(save_conversation(conversation, path, false), Error);
  EXPECT_EQ(read_conversation(path).size(), 1U);
  save_conversation(conversation, path, true);
  EXPECT_EQ(read_conversation(path).size(), 2U);
  EXPECT_THROW(save_conversation(conversation, directory.path_of("no/where"), false), Error);
  EXPECT_THROW((void)read_conversation(directory.path_of("nothing")), Error);
  test::write_text(path, "{\"messages\": []}");
  EXPECT_THROW((void)read_conversation(path), Error);
}

}  // namespace
}  // namespace moesaic
