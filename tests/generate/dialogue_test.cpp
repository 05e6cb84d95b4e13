// A conversation with the demo model: what it says, and what a turn costs.

#include "src/generate/dialogue.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "src/generate/kept_sequences.h"
#include "tests/generate/engine_run.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

const EngineSetup kDemo{.directory = MOESAIC_TEST_DATA "/demo-model",
                        .isa = supported_isas().back()};
const std::string kSystem =
    "Thou art the voice of the old book, and thou answerest as the prophets did answer, in the "
    "days of the kings, when all the people were gathered together before the house of the LORD.";

DialogueOptions short_answers() {
  return {.max_new_tokens = 12, .context_tokens = 2048, .sampling = {.temperature = 0}};
}

class DialogueOnRanks : public testing::TestWithParam<int> {
 protected:
  using Body = std::function<void(Dialogue& dialogue)>;

  /// A dialogue on as many ranks as the test has.
  void talk(const DialogueOptions& options, const Body& body, StepOptions steps = {}) const {
    steps.tokenizer = &tokenizer;
    steps.parallel = 1;
    run_engine(GetParam(), kDemo, steps, [&](EngineRun& run) {
      Dialogue dialogue({run.engine(), tokenizer, chat_template}, options);
      body(dialogue);
    });
  }
  void use_template(const std::string& text) {
    test::write_text(directory.path_of("t.jinja"), text);
    chat_template = ChatTemplate::from_directory(kDemo.directory, directory.path_of("t.jinja"));
  }
  /// The prompt of the answer that comes next.
  [[nodiscard]] std::vector<std::int32_t> prompt_of(const Conversation& conversation) const {
    return tokenizer.encode(chat_template.render(conversation.chat()).text, false);
  }
  /// The answer to the last question of `conversation`, by a dialogue that knew nothing of it.
  [[nodiscard]] Turn from_scratch(Conversation conversation, const DialogueOptions& options) const {
    Turn turn;
    talk(options, [&](Dialogue& dialogue) {
      dialogue.conversation() = std::move(conversation);
      turn = (dialogue.ask_again(), dialogue.answer({}));
    });
    return turn;
  }

  Tokenizer tokenizer = Tokenizer::from_directory(kDemo.directory);
  ChatTemplate chat_template = ChatTemplate::from_directory(kDemo.directory);
  test::TemporaryDirectory directory;
};

/// Positions that a prompt has in common with all that the turn before it computed: its prompt and
/// its answer, whose last token was never fed.
std::int64_t reused(const std::vector<std::int32_t>& earlier_prompt,
                    std::vector<std::int32_t> answer, const std::vector<std::int32_t>& prompt) {
  std::vector<std::int32_t> computed = earlier_prompt;
  if (!answer.empty()) answer.pop_back();
  computed.insert(computed.end(), answer.begin(), answer.end());
  return common_positions(computed, prompt);
}

TEST_P(DialogueOnRanks, a_turn_costs_its_own_tokens_and_says_what_it_would_from_scratch) {
  const DialogueOptions options = short_answers();
  talk(options, [&](Dialogue& dialogue) {
    dialogue.conversation().set_system(kSystem);
    std::vector<std::int32_t> earlier;
    std::string answer;
    for (const char* question : {"And what said the king?", "Who heard it?", "And then?"}) {
      dialogue.ask(question);
      const Conversation asked = dialogue.conversation();
      const std::vector<std::int32_t> prompt = prompt_of(asked);
      std::string told;
      const Turn turn = dialogue.answer({.on_text = [&](const auto& text) { told += text; }});
      EXPECT_EQ(turn.prompt_tokens, std::ssize(prompt));
      EXPECT_EQ(turn.computed_tokens,
                turn.prompt_tokens - reused(earlier, tokenizer.encode(answer, false), prompt));
      EXPECT_EQ(turn.answer_tokens, 12);
      EXPECT_EQ(turn.reason, StopReason::length);
      EXPECT_EQ(told, turn.text);
      EXPECT_EQ(turn.text, from_scratch(asked, options).text);
      earlier = prompt;
      answer = turn.text;
    }
  });
}

TEST_P(DialogueOnRanks, a_turn_after_an_answer_as_the_tokenizer_writes_it_costs_what_is_new) {
  talk(short_answers(), [&](Dialogue& dialogue) {
    dialogue.conversation().set_system(kSystem);
    dialogue.ask("And what said the king?");
    const auto first = std::ssize(prompt_of(dialogue.conversation()));
    const Turn turn = dialogue.answer({});
    ASSERT_EQ(std::ssize(tokenizer.encode(turn.text, false)), 12) << turn.text;
    dialogue.ask("Who heard it?");
    // The last token of an answer has not been fed yet.
    const Turn next = dialogue.answer({});
    EXPECT_EQ(next.computed_tokens, next.prompt_tokens - first - 11);
    EXPECT_LT(next.computed_tokens, 24);
  });
}

TEST_P(DialogueOnRanks, a_template_that_rewrites_earlier_turns_keeps_what_is_before_them) {
  // The first word of each earlier answer is dropped, as others drop what was thought.
  use_template(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{{ m.content.split(' ', 2)[-1] if m.role == 'assistant' else m.content }}<|im_end|>\n"
      "{% endfor %}<|im_start|>assistant\n");
  const DialogueOptions options = short_answers();
  talk(options, [&](Dialogue& dialogue) {
    dialogue.conversation().set_system(kSystem);
    dialogue.ask("And what said the king?");
    const std::vector<std::int32_t> first = prompt_of(dialogue.conversation());
    (void)dialogue.answer({});
    dialogue.ask("Who heard it?");
    const Conversation asked = dialogue.conversation();
    const std::vector<std::int32_t> second = prompt_of(asked);
    const Turn turn = dialogue.answer({});
    EXPECT_EQ(turn.computed_tokens, std::ssize(second) - common_positions(first, second));
    EXPECT_EQ(turn.text, from_scratch(asked, options).text);
  });
}

TEST_P(DialogueOnRanks, undo_and_another_try_cost_no_more_than_what_differs) {
  DialogueOptions options = short_answers();
  options.sampling.temperature = 1.5;
  talk(options, [&](Dialogue& dialogue) {
    dialogue.conversation().set_system(kSystem);
    dialogue.ask("And what said the king?");
    const Turn first = dialogue.answer({});
    dialogue.ask_again();
    const Turn second = dialogue.answer({});
    EXPECT_EQ(second.computed_tokens, 1) << "its logits alone";
    EXPECT_NE(second.text, first.text);
    EXPECT_EQ(dialogue.conversation().size(), 3U);
    ASSERT_TRUE(dialogue.conversation().undo());
    dialogue.ask("And what said the king?");
    const Turn again = dialogue.answer({});
    EXPECT_EQ(again.text, first.text) << "a first try again";
    EXPECT_EQ(again.computed_tokens, 1);
    const Conversation saved = dialogue.conversation();
    for (int other = 0; other < 2; ++other) {  // tries of other answers do not count
      dialogue.ask("Who heard it?");
      (void)dialogue.answer({});
      dialogue.ask_again();
      (void)dialogue.answer({});
      ASSERT_TRUE(dialogue.conversation().undo());
    }
    dialogue.ask_again();
    EXPECT_EQ(dialogue.answer({}).text, second.text);
    dialogue.replace(saved);
    dialogue.ask_again();
    EXPECT_EQ(dialogue.answer({}).text, second.text) << "as in a new program";
  });
}

TEST_P(DialogueOnRanks, an_answer_ends_when_the_listener_has_enough) {
  DialogueOptions options = short_answers();
  options.max_new_tokens = DialogueOptions::kUntilFull;
  talk(options, [&](Dialogue& dialogue) {
    dialogue.conversation().set_system(kSystem);
    dialogue.ask("And what said the king?");
    std::string told;
    const Turn turn = dialogue.answer({.on_text = [&](const auto& text) { told += text; },
                                       .has_enough = [&] { return told.size() > 20; }});
    EXPECT_EQ(turn.reason, StopReason::cancelled);
    EXPECT_EQ(turn.text, told);
    EXPECT_GT(told.size(), 20U);
    EXPECT_LT(turn.answer_tokens, 40);
    EXPECT_NE(dialogue.conversation().json().find(json_quote(told)), std::string::npos);
    dialogue.ask("And then?");
    const Turn next =
        dialogue.answer({.has_enough = [count = 0]() mutable { return ++count > 5; }});
    EXPECT_LE(next.computed_tokens, next.prompt_tokens - turn.prompt_tokens);
  });
}

TEST_P(DialogueOnRanks, a_question_that_nobody_waits_for_is_not_there) {
  talk(short_answers(),
       [&](Dialogue& dialogue) {
         dialogue.ask("And what said the king?");
         const Turn first = dialogue.answer({});
         const std::string before = dialogue.conversation().json();
         const Listener nobody{.has_enough = [] { return true; }};
         dialogue.ask("And then?");
         EXPECT_EQ(dialogue.answer(nobody).text, "");
         EXPECT_EQ(dialogue.conversation().json(), before);
         dialogue.ask_again();
         EXPECT_EQ(dialogue.answer(nobody).text, "");
         EXPECT_EQ(dialogue.conversation().json(), before);
         dialogue.ask_again();
         EXPECT_EQ(dialogue.answer({}).text, first.text);
       },
       {.batch_tokens = 8});
}

TEST_P(DialogueOnRanks, a_conversation_that_is_full_takes_no_more_questions) {
  DialogueOptions options = short_answers();
  options.max_new_tokens = DialogueOptions::kUntilFull;
  options.context_tokens = 40;
  talk(options, [&](Dialogue& dialogue) {
    dialogue.ask("And what said the king?");
    const Turn turn = dialogue.answer({});
    EXPECT_EQ(turn.reason, StopReason::length);
    EXPECT_EQ(turn.prompt_tokens + turn.answer_tokens, 40);
    const std::string before = dialogue.conversation().json();
    try {
      dialogue.ask("And then?");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("the context is 40"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(dialogue.conversation().json(), before);
  });
}

TEST_P(DialogueOnRanks, what_a_template_refuses_was_not_said) {
  use_template(
      "{% if messages | length > 2 %}{{ raise_exception('enough') }}{% endif %}"
      "{{ messages[0].content }}");
  talk(short_answers(), [&](Dialogue& dialogue) {
    EXPECT_THROW(dialogue.ask_again(), Error);
    dialogue.ask("And what said the king?");
    (void)dialogue.answer({});
    const std::string before = dialogue.conversation().json();
    EXPECT_THROW(dialogue.ask("And then?"), Error);
    EXPECT_EQ(dialogue.conversation().json(), before);
    dialogue.ask_again();
    EXPECT_EQ(dialogue.answer({}).answer_tokens, 12);
  });
}

TEST_P(DialogueOnRanks, an_answer_ends_with_the_tokens_that_end_it) {
  DialogueOptions options = short_answers();
  std::string free;
  talk(options, [&](Dialogue& dialogue) {
    dialogue.ask("And what said the king?");
    free = dialogue.answer({}).text;
  });
  options.stop_strings = {free.substr(5, 4)};
  talk(options, [&](Dialogue& dialogue) {
    dialogue.ask("And what said the king?");
    const Turn turn = dialogue.answer({});
    EXPECT_EQ(turn.reason, StopReason::stop_string);
    EXPECT_EQ(turn.text, free.substr(0, free.find(options.stop_strings[0])));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DialogueOnRanks, testing::Values(1, 2, 3));

}  // namespace
}  // namespace moesaic
