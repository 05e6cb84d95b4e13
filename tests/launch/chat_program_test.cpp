// `moesaic tokenize --chat` and `moesaic generate --chat` as a user meets them.

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(ChatProgram, tokenize_chat_gives_prompt_ids_and_mask) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("chats.jsonl");
  write_text(
      file,
      R"({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "God."}]})"
      "\n\n"
      R"({"messages": [{"role": "user", "content": "Who?"}], "add_generation_prompt": true})"
      "\n");
  const ProgramResult result =
      run_moesaic({"tokenize", "-m", kDemo, "--chat", "-f", file, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 2U);
  const Json first = Json::parse(lines[0], "line 1");
  EXPECT_EQ(first.at("prompt").as_string(),
            "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nGod.<|im_end|>\n");
  ASSERT_EQ(first.at("ids").size(), first.at("mask").size());
  std::int64_t said = 0;
  first.at("mask").for_each([&](const std::string&, const Json& bit) { said += bit.as_int(); });
  EXPECT_GE(said, 3);  // "God." and what ends the turn
  EXPECT_EQ(first.at("mask").at(std::int64_t{0}).as_int(), 0);
  const Json second = Json::parse(lines[1], "line 2");
  EXPECT_TRUE(second.at("prompt").as_string().ends_with("<|im_start|>assistant\n"));
  const ProgramResult prompt =
      run_moesaic({"tokenize", "-m", kDemo, "--chat", "-p", "Who?", "--json"});
  EXPECT_EQ(lines_of(prompt.out).at(0), lines[1]) << prompt.text();
}

TEST(ChatProgram, a_whole_file_is_a_users_turn) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("turn.txt");
  write_text(file, "Who?\nGod?\n");
  const Arguments command = {"tokenize", "-m", kDemo, "--chat", "--json"};
  const ProgramResult whole = run_moesaic(joined(command, {"--whole-file", "-f", file}));
  EXPECT_EQ(whole.exit_code, 0) << whole.text();
  EXPECT_EQ(whole.out, run_moesaic(joined(command, {"-p", "Who?\nGod?"})).out);
}

TEST(ChatProgram, masks_that_cannot_be_told_are_null) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("chats.jsonl");
  const std::string made = directory.path_of("mine.jinja");
  write_text(file, R"({"messages": [{"role": "assistant", "content": "a"}]})"
                   "\n");
  write_text(made, "{{ messages | length }} {{ messages[0].content }}{{ add_generation_prompt }}");
  const ProgramResult result = run_moesaic(
      {"tokenize", "-m", kDemo, "--chat", "--chat-template", made, "-f", file, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json line = Json::parse(lines_of(result.out).at(0), "line");
  EXPECT_EQ(line.at("prompt").as_string(), "1 aFalse");
  EXPECT_FALSE(line.contains("mask"));
  EXPECT_NE(result.out.find("\"mask\": null"), std::string::npos);
}

TEST(ChatProgram, what_is_wrong_is_named_with_its_line) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("chats.jsonl");
  const std::string made = directory.path_of("mine.jinja");
  write_text(file, R"({"messages": [{"role": "user", "content": "a"}]})"
                   "\n");
  write_text(made, "\n{{ raise_exception('Roles must alternate') }}");
  const ProgramResult refused =
      run_moesaic({"tokenize", "-m", kDemo, "--chat", "--chat-template", made, "-f", file});
  EXPECT_EQ(refused.exit_code, 3) << refused.text();
  EXPECT_NE(refused.err.find("line 1: " + made + " line 2: Roles must alternate"),
            std::string::npos)
      << refused.err;
  write_text(file, "{\"prompt\": \"x\"}\n");
  const ProgramResult wrong = run_moesaic({"tokenize", "-m", kDemo, "--chat", "-f", file});
  EXPECT_EQ(wrong.exit_code, 3) << wrong.text();
  EXPECT_NE(wrong.err.find("line 1: field \"messages\" is missing"), std::string::npos);
  write_text(file, "{\"messages\": [], \"max_tokens\": 3, \"add_generation_promt\": true}\n");
  expect_failure(run_moesaic({"tokenize", "-m", kDemo, "--chat", "-f", file}), 3,
                 {"line 1: unknown field \"add_generation_promt\"",
                  "did you mean \"add_generation_prompt\"?"});
  const ProgramResult alone =
      run_moesaic({"tokenize", "-m", kDemo, "--chat-template", made, "-p", "x"});
  EXPECT_EQ(alone.exit_code, 2) << alone.text();
}

TEST(TokenizeLines, those_that_are_bad_do_not_keep_the_others_from_their_tokens) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("lines.jsonl");
  const auto run = [&](const Arguments& more) {
    return run_moesaic(joined({"tokenize", "-m", kDemo, "-f", file}, more));
  };
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}]})";
  const std::string prompt = R"({"prompt": "a"})";
  for (const bool is_chat : {true, false}) {
    const Arguments how = is_chat ? Arguments{"--chat"} : Arguments{};
    const std::string good = is_chat ? chat : prompt;
    // Of another kind, no UTF-8, no JSON.
    const std::string bad = (is_chat ? prompt : chat) + "\n\n\"\xff\"\r\n{\n";
    write_text(file, bad + good + "\n");
    const ProgramResult result = run(joined(how, {"--json"}));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    const std::vector<std::string> lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 4U) << result.text();
    for (const auto& [index, text] : {std::pair{0U, file + " line 1: "},
                                      {1U, file + " line 3 is not UTF-8"},
                                      {2U, file + " line 4"}}) {
      const Json line = Json::parse(lines[index], "line");
      EXPECT_TRUE(line.at("error").as_string().starts_with(text)) << lines[index];
      EXPECT_FALSE(line.contains("ids"));
    }
    EXPECT_GT(Json::parse(lines[3], "line").at("ids").size(), 0);
    EXPECT_NE(result.err.find("3 of 4 prompts are not encoded (--strict refuses such files)"),
              std::string::npos)
        << result.err;
    const ProgramResult table = run(how);
    EXPECT_EQ(table.exit_code, 0) << table.text();
    EXPECT_NE(table.out.find("\n--- " + file + " line 3\n[" + file + " line 3 is not UTF-8]\n"),
              std::string::npos)
        << table.out;
    const ProgramResult strict = run(joined(how, {"--strict"}));
    expect_failure(strict, 3, {is_chat ? "line 1" : "line 3"});
    EXPECT_EQ(strict.out, "");
    write_text(file, good + "\n" + (is_chat ? R"({"messages": [{}]})" : chat) + "\n");
    EXPECT_EQ(run(joined(how, {"--strict"})).out, "") << "not the first one either";
    write_text(file, bad);
    const ProgramResult none = run(joined(how, {"--json"}));
    expect_failure(none, is_chat ? 3 : 2, {"line 1"});
    EXPECT_EQ(lines_of(none.out).size(), 3U) << none.text();
  }
}

const Arguments kGenerateChat = {"generate", "-m", kDemo, "--chat", "--temp", "0", "-n", "12"};

TEST(GenerateChat, a_prompt_is_a_users_turn) {
  const ProgramResult result =
      run_moesaic(joined(kGenerateChat, {"-p", "And what said the king?"}));
  ASSERT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(result.out.find("king?"), std::string::npos) << "the answer alone";
  EXPECT_EQ(result.out.find("<|im_start|>"), std::string::npos);
  const ProgramResult talk = run_with_input(
      moesaic_command({"chat", "-m", kDemo, "--temp", "0", "-n", "12"}), "And what said the king?");
  EXPECT_EQ(result.out, talk.out);
  const ProgramResult told = run_moesaic(
      joined(kGenerateChat, {"-p", "And what said the king?", "-sys", "Be brief.", "--json"}));
  const Json line = Json::parse(lines_of(told.out).at(0), "line");
  EXPECT_EQ(line.at("prompt").as_string(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nAnd what said the king?"
            "<|im_end|>\n<|im_start|>assistant\n");
}

TEST(GenerateChat, lines_have_messages_and_options_of_their_own) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("chats.jsonl");
  const std::string made = directory.path_of("mine.jinja");
  write_text(made,
             "{{ word }}{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}"
             "{{ tools | length if tools }}{{ add_generation_prompt }}");
  write_text(
      file,
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )"
      R"({"role": "user", "content": "c"}], "tools": [{"name": "f"}], "max_tokens": 3, "id": 7})"
      "\n"
      R"({"messages": [{"role": "user", "content": "d"}], "chat_template_kwargs": {"word": "own "}})"

      "\n");
  const ProgramResult result =
      run_moesaic(joined(kGenerateChat, {"-f", file, "--json", "--chat-template", made,
                                         "--chat-template-kwargs", R"({"word": "given "})"}));
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  const Json first = Json::parse(lines.at(0), "line 1");
  EXPECT_EQ(first.at("prompt").as_string(), "given user aassistant buser c1True");
  EXPECT_EQ(first.at("ids").size(), 3);
  EXPECT_EQ(first.at("id").as_int(), 7);
  EXPECT_EQ(Json::parse(lines.at(1), "line 2").at("prompt").as_string(), "own user dTrue");
}

TEST(GenerateChat, a_later_turn_is_what_chat_says) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("c.jsonl");
  const ProgramResult talk =
      run_with_input(moesaic_command({"chat", "-m", kDemo, "--temp", "0", "-n", "12"}),
                     "And what said the king?\nWho heard it?\n/save " + file + "\n");
  ASSERT_EQ(talk.exit_code, 0) << talk.text();
  std::string saved = read_text(file);
  const std::size_t last = saved.rfind(", {\"role\": \"assistant\"");
  ASSERT_NE(last, std::string::npos);
  write_text(file, saved.substr(0, last) + "]}\n");
  const ProgramResult result = run_moesaic(joined(kGenerateChat, {"-f", file}));
  ASSERT_EQ(result.exit_code, 0) << result.text();
  EXPECT_TRUE(talk.out.ends_with(result.out)) << result.out << "\n" << talk.out;
}

TEST(GenerateChat, what_is_wrong_is_named) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("chats.jsonl");
  const std::string made = directory.path_of("mine.jinja");
  write_text(made, "{{ raise_exception('Roles must alternate') }}");
  write_text(file, "{\"prompt\": [1, 2]}\n");
  expect_failure(run_moesaic(joined(kGenerateChat, {"-f", file})), 2, {"line 1", "--chat"});
  write_text(file, "{\"prompt\": \"x\", \"tools\": []}\n");
  expect_failure(run_moesaic(joined(kGenerateChat, {"-f", file})), 3, {"line 1", "tools"});
  expect_failure(run_moesaic(joined(kGenerateChat, {"-p", "x", "--chat-template", made})), 3,
                 {"--prompt", "Roles must alternate"});
  expect_failure(run_moesaic(generate_with({"-sys", "x"})), 2, {"--system-prompt", "no --chat"});
  expect_failure(run_moesaic(joined(kGenerateChat, {"-p", "x", "-sys", "caf\xE9"})), 2,
                 {"--system-prompt", "UTF-8"});
  expect_failure(run_ranks(2, joined(kGenerateChat, {"-p", ""})), 2, {"is empty"});
}

}  // namespace
}  // namespace moesaic::test
