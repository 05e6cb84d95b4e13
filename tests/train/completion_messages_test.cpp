// Conversations whose trained part stands in a member of its own: TRL's prompt and completion.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/train/read_lines.h"

namespace moesaic {
namespace {

std::string message(const std::string& role, const std::string& content) {
  return R"({"role": ")" + role + R"(", "content": ")" + content + "\"}";
}

const std::string kAsks = message("user", "one");
const std::string kAnswers = message("assistant", "two");
const std::string kAsksMore = message("user", "three");
const std::string kAnswersMore = message("assistant", "four");

std::string messages_line(const std::string& messages) {
  return R"({"messages": [)" + messages + "]}";
}

std::string completion_line(const std::string& prompt, const std::string& completion) {
  return R"({"prompt": [)" + prompt + R"(], "completion": [)" + completion + "]}";
}

/// With a template of generation blocks.
SampleTools generation_tools() {
  SampleTools with = tools();
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}\n{% endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  with.chat_template = ChatTemplate(ChatFiles{{{"default", {source, "test"}}}, {}});
  return with;
}

SampleTools training_last(SampleTools with) {
  with.train_on = TrainOn::last;
  return with;
}

void expect_equal(const Result& one, const Result& other) {
  ASSERT_EQ(one.samples.size(), 1);
  ASSERT_EQ(other.samples.size(), 1);
  EXPECT_TRUE(std::ranges::equal(one.samples[0].tokens, other.samples[0].tokens));
  EXPECT_TRUE(std::ranges::equal(one.samples[0].labels, other.samples[0].labels))
      << trained_text(one.samples[0]) << " and " << trained_text(other.samples[0]);
}

TEST(CompletionMessages, AreTheSamplesOfEqualConversations) {
  const std::string all = kAsks + "," + kAnswers + "," + kAsksMore + "," + kAnswersMore;
  for (const SampleTools& with : {tools(), generation_tools()}) {
    const Result one = read(completion_line(kAsks, kAnswers), with);
    EXPECT_EQ(one.format, SampleFormat::completion_messages);
    expect_equal(one, read(messages_line(kAsks + "," + kAnswers), with));
    const std::string more =
        completion_line(kAsks + "," + kAnswers + "," + kAsksMore, kAnswersMore);
    expect_equal(read(more, with), read(messages_line(all), training_last(with)));
    const std::string turns =
        completion_line(kAsks, kAnswers + "," + kAsksMore + "," + kAnswersMore);
    expect_equal(read(turns, with), read(messages_line(all), with));
    expect_equal(read(turns, training_last(with)), read(messages_line(all), training_last(with)));
  }
}

TEST(CompletionMessages, OfOneTurnAreTrainedInTheCompletionAlone) {
  const std::string prefilled = completion_line(kAsks + "," + kAnswers, kAnswersMore);
  for (const SampleTools& with : {tools(), generation_tools()}) {
    EXPECT_EQ(trained_text(read(prefilled, with).samples[0]), "four\n|");
    EXPECT_EQ(trained_text(read(prefilled, training_last(with)).samples[0]), "four\n|");
  }
}

TEST(CompletionMessages, AreToldHoweverTheTemplateWritesThePrompt) {
  SampleTools with = tools();  // as Qwen3 thinks, in its last turn alone
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.role == 'assistant' %}<>"
      "{% endif %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
      "%}";
  with.chat_template = ChatTemplate(ChatFiles{{{"default", {source, "test"}}}, {}});
  const std::string prompt = kAsks + "," + kAnswers + "," + kAsksMore;
  EXPECT_NE(error_of(messages_line(prompt + "," + kAnswersMore), with).find("cannot be told"),
            std::string::npos);
  EXPECT_EQ(trained_text(read(completion_line(prompt, kAnswersMore), with).samples[0]),
            "<>four\n|");
  const std::string error =
      error_of(completion_line(kAsks, kAnswers + "," + kAsksMore + "," + kAnswersMore), with);
  EXPECT_NE(error.find("writes what stands before a turn of the completion in another way"),
            std::string::npos)
      << error;
}

TEST(CompletionMessages, HaveToolsAndVariablesOfTheTemplate) {
  SampleTools with = tools();
  const std::string source =
      "{{ tools | length }}{{ style }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  with.chat_template = ChatTemplate(ChatFiles{{{"default", {source, "test"}}}, {}});
  const std::string line = R"({"prompt": [)" + kAsks + R"(], "completion": [)" + kAnswers +
                           R"(], "tools": [{}], "chat_template_kwargs": {"style": "brief"}})";
  EXPECT_EQ(with.tokenizer->decode(read(line, with).samples[0].tokens, false),
            "1brief<user>one\n<assistant>two\n");
}

TEST(CompletionMessages, ThatAreWrongAreNamed) {
  const std::string good = completion_line(kAsks, kAnswers) + "\n";
  const std::string texts = R"({"prompt": "a", "completion": "b"})";
  const std::string mixed = R"({"prompt": [)" + kAsks + R"(], "completion": "b"})";
  const std::string alike = "expected prompt and completion to be two texts, or two lists";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {good + completion_line(kAsks, kAsksMore),
       "data.jsonl line 2: completion: no message of role assistant"},
      {good + completion_line("", kAnswers),
       "data.jsonl line 2: prompt: expected a list of at least one message"},
      {completion_line(kAsks, ""),
       "data.jsonl line 1: completion: expected a list of at least one"},
      {completion_line(kAsks, "\"two\""), "completion[0]: a message must be an object"},
      {good + mixed, "data.jsonl line 2: " + alike},
      {mixed, "data.jsonl line 1: " + alike},
      {R"({"prompt": "a", "completion": [)" + kAnswers + "]}", "data.jsonl line 1: " + alike},
      {R"({"prompt": 3, "completion": 4})", "data.jsonl line 1: " + alike},
      {good + R"({"completion": [)" + kAnswers + "]}", "data.jsonl line 2: "},
      {good + texts,
       "data.jsonl line 2: prompt and completion are texts: the format of such lines "
       "is completion"},
      {texts + "\n" + good,
       "data.jsonl line 2: prompt and completion are lists of messages: the "
       "format of such lines is completion-messages"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(error_of(text).find(expected), std::string::npos) << error_of(text);
  }
}

}  // namespace
}  // namespace moesaic
