// `moesaic chat` with a pipe in place of a person.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kSystem = "Thou art the voice of an old book, and thou answerest as kings did.";

ProgramResult talk(const Arguments& more, const std::string& input, int ranks = 1) {
  const Arguments launcher =
      ranks == 1 ? Arguments{} : Arguments{MOESAIC_MPIRUN, "-n", std::to_string(ranks)};
  return run_with_input(
      joined(launcher, moesaic_command(joined({"chat", "-m", kDemo, "-n", "12"}, more))), input);
}

TEST(ChatPipe, each_line_is_a_turn_and_the_standard_output_has_the_answers_alone) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("c.jsonl");
  const Arguments options = {"--temp", "0", "-sys", kSystem};
  const std::string questions = "And what said the king?\nWho heard it?\n";
  const ProgramResult result = talk(options, questions + "/save " + file + "\n");
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json messages = Json::read_file(file).at("messages");
  ASSERT_EQ(messages.size(), 5);
  const auto said = [&](std::int64_t index) {
    return messages.at(index).at("content").as_string();
  };
  EXPECT_EQ(result.out, said(2) + "\n" + said(4) + "\n");
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
  EXPECT_NE(result.err.find("2 answers: prompt "), std::string::npos) << result.err;
  const ProgramResult quiet = talk(joined(options, {"--log-level", "error"}), questions);
  EXPECT_EQ(quiet.out, result.out);
  EXPECT_EQ(quiet.err.find('>'), std::string::npos) << quiet.err;
}

TEST(ChatPipe, answers_are_the_same_on_several_ranks) {
  const std::string input = "And what said the king?\nWho heard it?\n/retry\n";
  const Arguments options = {"--seed", "3", "-sys", kSystem};
  const ProgramResult alone = talk(options, input);
  ASSERT_EQ(alone.exit_code, 0) << alone.text();
  EXPECT_NE(alone.err.find("3 answers: "), std::string::npos) << alone.text();
  for (const int ranks : {2, 4}) {
    const ProgramResult together = talk(options, input, ranks);
    EXPECT_EQ(together.exit_code, 0) << together.text();
    EXPECT_EQ(together.out, alone.out);
  }
}

TEST(ChatPipe, a_conversation_goes_on_from_a_file_as_it_would_have) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("c.jsonl");
  const std::string rest = "Who heard it?\n/retry\n";
  const ProgramResult whole = talk({"--seed", "3", "-sys", kSystem},
                                   "And what said the king?\n/save " + file + "\n/save\n" + rest);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  EXPECT_EQ(whole.error_lines(), 0) << whole.text();
  const ProgramResult later = talk({"--seed", "3"}, "/load " + file + "\n" + rest);
  ASSERT_EQ(later.exit_code, 0) << later.text();
  std::vector<std::string> answers = lines_of(whole.out);
  answers.erase(answers.begin());
  EXPECT_EQ(lines_of(later.out), answers);
  const Json saved = Json::read_file(file);
  EXPECT_EQ(saved.at("messages").size(), 3);
  const ProgramResult known = run_moesaic({"tokenize", "-m", kDemo, "--chat", "-f", file});
  EXPECT_EQ(known.exit_code, 0) << known.text();
  const ProgramResult refused = talk({}, "Who heard it?\n/save " + file + "\n");
  EXPECT_NE(refused.err.find("it stays as it is"), std::string::npos) << refused.text();
}

TEST(ChatPipe, another_conversation_is_not_saved_over_one_that_was_saved) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("c.json");
  const ProgramResult result = talk(
      {"--temp", "0"}, "And what said the king?\n/save " + file +
                           "\n/reset\n/stats\n/save\nWho heard it?\n/save\n/save " + file + "\n");
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(result.error_lines(), 3) << result.text();
  EXPECT_NE(result.err.find("context: 0 of "), std::string::npos) << result.text();
  EXPECT_NE(result.err.find("it stays as it is"), std::string::npos) << result.text();
  EXPECT_EQ(Json::read_file(file).at("messages").at(0).at("content").as_string(),
            "And what said the king?");
}

TEST(ChatPipe, what_is_wrong_is_told_and_the_conversation_goes_on) {
  const ProgramResult result = talk({"--temp", "0"},
                                    "/rtry\n/retry\n/load nothing\n/undo\n"
                                    "And what said the king?\n/undo\n/retry\nWho heard it?\n");
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(result.error_lines(), 5) << result.text();
  EXPECT_EQ(lines_of(result.out).size(), 2U);
}

TEST(ChatPipe, what_is_not_utf8_is_not_taken_and_a_byte_order_mark_is_no_part_of_a_line) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("c.jsonl");
  const ProgramResult result = talk({"--temp", "0"},
                                    "\xEF\xBB\xBF/system Be brief.\ncaf\xE9\nx\xF0\n"
                                    "/system caf\xE9\nWho heard it?\n/save " +
                                        file + "\n");
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(result.error_lines(), 3) << result.text();
  const Json messages = Json::read_file(file).at("messages");
  ASSERT_EQ(messages.size(), 3);
  EXPECT_EQ(messages.at(0).at("content").as_string(), "Be brief.");
  EXPECT_EQ(messages.at(1).at("content").as_string(), "Who heard it?");
  expect_failure(talk({"-sys", "caf\xE9"}, ""), 2, {"--system-prompt", "UTF-8"});
}

TEST(ChatPipe, a_template_and_its_variables_can_be_given) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("t.jinja");
  write_text(file,
             "{% if word is undefined %}{{ raise_exception('no word') }}{% endif %}"
             "{% for m in messages %}{{ m.content }}{{ word }}{% endfor %}");
  const Arguments own = {"--chat-template", file, "--temp", "0"};
  const ProgramResult without = talk(own, "Who?\n");
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_NE(without.err.find("no word"), std::string::npos) << without.text();
  const ProgramResult with =
      talk(joined(own, {"--chat-template-kwargs", R"({"word": " And"})"}), "In the beginning\n");
  EXPECT_EQ(with.error_lines(), 0) << with.text();
  EXPECT_FALSE(with.out.empty());
  // A conversation from a file has them, too, and a system prompt unless it has one.
  const std::string conversation = directory.path_of("c.json");
  write_text(conversation, R"({"messages": [{"role": "user", "content": "In the"}]})");
  const std::string saved = directory.path_of("saved.json");
  const ProgramResult loaded =
      talk(joined(own, {"--chat-template-kwargs", R"({"word": " And"})", "-sys", "Be brief."}),
           "/load " + conversation + "\n/retry\n/save " + saved + "\n");
  EXPECT_EQ(loaded.error_lines(), 0) << loaded.text();
  EXPECT_EQ(Json::read_file(saved).at("messages").at(0).at("content").as_string(), "Be brief.");
  expect_failure(talk({"--chat-template-kwargs", "[1]"}, ""), 2, {"--chat-template-kwargs"});
  expect_failure(talk({"--chat-template", directory.path_of("no")}, ""), 3, {"no such file"});
}

TEST(ChatPipe, an_answer_ends_where_the_template_ends_a_turn) {
  // A tokenizer in which a comma is special, and a template that writes one behind each answer.
  const TemporaryDirectory directory;
  std::filesystem::copy(kDemo, directory.path(), std::filesystem::copy_options::recursive);
  std::string text = read_text(directory.path_of("tokenizer.json"));
  const std::string list = "\"added_tokens\": [";
  const std::size_t at = text.find(list);
  ASSERT_NE(at, std::string::npos);
  text.insert(at + list.size(), R"({"id": 11, "content": ",", "special": true, "normalized": false,
                                    "single_word": false, "lstrip": false, "rstrip": false},)");
  write_text(directory.path_of("tokenizer.json"), text);
  write_text(directory.path_of("chat_template.jinja"),
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }},\n{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto answer = [&](const Arguments& more) {
    const ProgramResult result = run_with_input(
        moesaic_command(joined({"chat", "-m", directory.path(), "--temp", "0", "-n", "100"}, more)),
        "And what said the king?\n");
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return result;
  };
  const ProgramResult free = answer({"--ignore-eos"});
  const ProgramResult ended = answer({});
  EXPECT_NE(free.err.find("cut off"), std::string::npos) << free.text();
  EXPECT_EQ(ended.err.find("cut off"), std::string::npos) << ended.text();
  EXPECT_LT(ended.out.size(), free.out.size());
}

TEST(ChatPipe, a_context_is_what_the_memory_allows) {
  // A long context, whose cache takes more than loading does: 20 MiB.
  const TemporaryDirectory directory;
  std::filesystem::copy(kDemo, directory.path(), std::filesystem::copy_options::recursive);
  std::string config = read_text(directory.path_of("config.json"));
  const std::string length = "\"max_position_embeddings\": ";
  const std::size_t at = config.find(length + "2048");
  ASSERT_NE(at, std::string::npos);
  config.replace(at + length.size(), 4, "16384");
  write_text(directory.path_of("config.json"), config);
  const auto talk_in = [&](const Arguments& more) {
    return run_with_input(
        moesaic_command(joined({"chat", "-m", directory.path(), "-b", "16", "-t", "1"}, more)), "");
  };
  const auto context = [&](const Arguments& more) {
    const ProgramResult result = talk_in(more);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    const std::size_t found = result.err.find("context of ");
    return found == std::string::npos ? 0 : std::stoi(result.err.substr(found + 11));
  };
  EXPECT_EQ(context({}), 16384);
  EXPECT_EQ(context({"-c", "300"}), 300);
  // What all takes is told where there is too little for anything.
  const ProgramResult none = talk_in({"--memory-limit", "1M", "-c", "16384"});
  expect_failure(none, 4, {"not enough memory", "key-value cache 20.0 MiB"});
  const std::size_t need = none.err.find("need ");
  ASSERT_NE(need, std::string::npos) << none.text();
  const auto less_mib = static_cast<int>(std::stod(none.err.substr(need + 5))) - 12;
  const Arguments limit = {"--memory-limit", fmt::format("{}M", less_mib)};
  const int less = context(limit);
  EXPECT_GE(less, 1024);
  EXPECT_LT(less, 16384);
  const ProgramResult refused = talk_in(joined(limit, {"-c", "16384"}));
  expect_failure(refused, 4, {"not enough memory", "--ctx-size"});
}

}  // namespace
}  // namespace moesaic::test
