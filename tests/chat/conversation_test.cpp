#include "src/chat/conversation.h"

#include <gtest/gtest.h>

#include "src/chat/turn_end.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

const std::string kData = MOESAIC_TEST_DATA;

/// "system: s|user: q|..." of what a template would see.
std::string text_of(const Conversation& conversation) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("t.jinja");
  test::write_text(file,
                   "{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}"
                   "{{ tools is none }} {{ add_generation_prompt }} {{ depth is defined }}");
  return ChatTemplate::from_directory(kData + "/demo-model", file).render(conversation.chat()).text;
}

TEST(Conversation, messages_come_and_go) {
  Conversation conversation;
  EXPECT_FALSE(conversation.undo());
  EXPECT_FALSE(conversation.retract_answer());
  conversation.set_system("Be brief.");
  conversation.ask("One?");
  conversation.answer("1");
  conversation.ask("Two?");
  conversation.answer("2");
  EXPECT_EQ(conversation.answers(), 2);
  EXPECT_EQ(text_of(conversation),
            "system: Be brief.|user: One?|assistant: 1|user: Two?|assistant: 2|True True False");
  EXPECT_TRUE(conversation.retract_answer());
  EXPECT_TRUE(conversation.retract_answer());
  EXPECT_EQ(text_of(conversation),
            "system: Be brief.|user: One?|assistant: 1|user: Two?|True True False");
  EXPECT_TRUE(conversation.undo());
  EXPECT_EQ(text_of(conversation), "system: Be brief.|user: One?|assistant: 1|True True False");
  conversation.set_system("Be long.");
  EXPECT_EQ(conversation.system(), "Be long.");
  EXPECT_EQ(text_of(conversation), "system: Be long.|user: One?|assistant: 1|True True False");
  conversation.clear();
  EXPECT_EQ(text_of(conversation), "system: Be long.|True True False");
  conversation.set_system("");
  EXPECT_EQ(conversation.system(), "");
  EXPECT_EQ(conversation.size(), 0U);
}

TEST(Conversation, what_is_written_is_read_again) {
  const std::string line = R"({"messages": [{"role": "user", "content": "Wer \"ä\"?\n"}, )"
                           R"({"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}, )"
                           R"({"role": "tool", "content": "x"}], )"
                           R"("tools": [{"name": "f"}], "chat_template_kwargs": {"depth": 2}})";
  Conversation conversation(read_chat(Json::parse(line, "line")));
  EXPECT_EQ(conversation.json(), line);
  EXPECT_TRUE(text_of(conversation).ends_with("False True True"));
  // What an assistant and its tools did since the question goes at once.
  EXPECT_TRUE(conversation.retract_answer());
  EXPECT_EQ(conversation.size(), 1U);
}

TEST(Conversation, a_system_prompt_need_not_be_a_text) {
  Conversation conversation(read_chat(Json::parse(
      R"({"messages": [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]})",
      "line")));
  EXPECT_TRUE(conversation.has_system());
  EXPECT_EQ(conversation.system(), R"([{"type": "text", "text": "Be brief."}])");
  conversation.set_system("");
  EXPECT_FALSE(conversation.has_system());
  EXPECT_EQ(conversation.system(), "");
}

TEST(Conversation, a_chat_is_of_the_messages_when_it_was_asked_for) {
  Conversation conversation;
  conversation.ask("One?");
  const Chat chat = conversation.chat();
  conversation.answer("1");
  EXPECT_EQ(chat.messages.sequence()->items.size(), 1U);
}

TEST(TurnEnd, is_the_special_token_behind_an_answer) {
  const Tokenizer tokenizer = Tokenizer::from_directory(kData + "/demo-model");
  const auto end = [&](const std::string& text) {
    const test::TemporaryDirectory directory;
    const std::string file = directory.path_of("t.jinja");
    test::write_text(file, text);
    return turn_end_token(ChatTemplate::from_directory(kData + "/demo-model", file), tokenizer);
  };
  EXPECT_EQ(turn_end_token(ChatTemplate::from_directory(kData + "/demo-model"), tokenizer),
            tokenizer.token_id("<|im_end|>"));
  EXPECT_EQ(end("{% for m in messages %}{{ m.content | trim }}\n{% endfor %}<|im_end|>"),
            std::nullopt);
  EXPECT_EQ(end("{% for m in messages %}{{ m.content }}{% endfor %}"), std::nullopt);
  EXPECT_EQ(end("nothing of it<|im_end|>"), std::nullopt);
  EXPECT_EQ(end("{{ raise_exception('no') }}"), std::nullopt);
}

}  // namespace
}  // namespace moesaic
