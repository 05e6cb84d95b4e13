#include "src/chat/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "src/chat/assistant_mask.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

Chat chat_of(const std::string& json) {
  return read_chat(Json::parse(json, "line 1"));
}

const std::string kHello = R"({"messages": [{"role": "user", "content": "Hello"}]})";
const std::string kTools =
    R"({"messages": [{"role": "user", "content": "Hello"}], "tools": [{"name": "f"}]})";

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "no error";
}

/// A directory with files that name the templates in them.
class Sources : public testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) {
    const std::filesystem::path path = directory_.path_of(file);
    std::filesystem::create_directories(path.parent_path());
    test::write_text(path.string(), text);
  }
  [[nodiscard]] std::string text_of(const std::string& chat,
                                    const std::optional<std::string>& file = {}) const {
    return ChatTemplate::from_directory(directory_.path(), file).render(chat_of(chat)).text;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(Sources, a_file_beats_the_jinja_file_which_beats_the_configuration) {
  put("chat_template.json", R"({"chat_template": "oldest"})");
  EXPECT_EQ(text_of(kHello), "oldest");
  put("tokenizer_config.json", R"({"chat_template": "configured {{ bos_token }}{{ x }}",
                                   "bos_token": {"content": "<s>"}, "eos_token": null})");
  EXPECT_EQ(text_of(kHello), "configured <s>");
  put("chat_template.jinja", "jinja {{ bos_token }} {{ eos_token is defined }}\n");
  EXPECT_EQ(text_of(kHello), "jinja <s> False");
  put("mine.jinja", "mine {{ bos_token }}");
  EXPECT_EQ(text_of(kHello, directory_.path_of("mine.jinja")), "mine <s>");
  EXPECT_NE(message_of([&] { (void)text_of(kHello, "/nowhere/x.jinja"); }).find("no such file"),
            std::string::npos);
}

/// As transformers 5.24 has them.
TEST_F(Sources, special_tokens_come_from_the_map_unless_the_configuration_has_all) {
  put("chat_template.jinja", "{{ bos_token }}{{ image_token }}");
  put("special_tokens_map.json", R"({"bos_token": "<map>"})");
  EXPECT_EQ(text_of(kHello), "<map>");
  put("tokenizer_config.json",
      R"({"bos_token": "<s>", "extra_special_tokens": {"image_token": "<img>"}})");
  EXPECT_EQ(text_of(kHello), "<map><img>");
  put("tokenizer_config.json", R"({"bos_token": "<s>", "added_tokens_decoder": {}})");
  EXPECT_EQ(text_of(kHello), "<s>");
}

TEST_F(Sources, named_templates_are_chosen_by_tools) {
  put("tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "plain"},
                            {"name": "tool_use", "template": "tools {{ tools | length }}"}]})");
  EXPECT_EQ(text_of(kHello), "plain");
  EXPECT_EQ(text_of(kTools), "tools 1");
  put("chat_template.jinja", "file");
  EXPECT_EQ(text_of(kTools), "file");
  put("additional_chat_templates/tool_use.jinja", "more {{ tools[0].name }}");
  EXPECT_EQ(text_of(kTools), "more f");
  EXPECT_EQ(text_of(kHello), "file");
}

TEST_F(Sources, what_is_missing_or_wrong_is_named) {
  EXPECT_NE(message_of([&] { (void)text_of(kHello); }).find("--chat-template FILE"),
            std::string::npos);
  put("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_NE(message_of([&] { (void)text_of(kHello); }).find("none of the model's"),
            std::string::npos);
  put("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(message_of([&] { (void)text_of(kHello); }).find("chat_template: expected"),
            std::string::npos);
  put("tokenizer_config.json", R"({"chat_template": "a\n{{ raise_exception('Not so') }}"})");
  const std::string refused = message_of([&] { (void)text_of(kHello); });
  EXPECT_TRUE(refused.ends_with("tokenizer_config.json: chat_template line 2: Not so")) << refused;
}

TEST(Chat, lines_that_are_wrong_are_named) {
  EXPECT_NE(message_of([] { (void)chat_of("{}"); }).find("\"messages\" is missing"),
            std::string::npos);
  EXPECT_NE(message_of([] { (void)chat_of(R"({"messages": []})"); }).find("at least one"),
            std::string::npos);
  EXPECT_NE(message_of([] { (void)chat_of(R"({"messages": ["x"]})"); }).find("messages[0]"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              (void)chat_of(R"({"messages": [{}], "chat_template_kwargs": {"tools": []}})");
            }).find("stands beside"),
            std::string::npos);
}

TEST(Chat, one_turn_of_a_user_asks_for_an_answer) {
  ChatFiles files;
  files.templates["default"] = {
      "{{ messages[0].role }}:{{ messages[0].content }}{{ add_generation_prompt }}", "t"};
  EXPECT_EQ(ChatTemplate(files).render(chat_of_user("Hi")).text, "user:HiTrue");
}

TEST(Chat, its_own_variables_stay) {
  Chat chat = chat_of(R"({"messages": [{"role": "user", "content": ""}],
                          "chat_template_kwargs": {"a": 1}})");
  const Json defaults = Json::parse(R"({"a": 2, "b": 3})", "defaults");
  add_variables(chat, read_template_variables(defaults));
  ChatFiles files;
  files.templates["default"] = {"{{ a }} {{ b }}", "t"};
  EXPECT_EQ(ChatTemplate(files).render(chat).text, "1 3");
}

TEST(AssistantMask, turns_need_the_text_before_them) {
  const Chat chat = chat_of(R"({"messages": [{"role": "user", "content": "ab"},
      {"role": "assistant", "content": "cde"}, {"role": "user", "content": "f"}]})");
  const auto spans_of = [&](const std::string& source) {
    ChatFiles files;
    files.templates["default"] = {source, "t"};
    const ChatTemplate made(files);
    return assistant_spans(made, chat, made.render(chat));
  };
  const std::string prompt = "{% if add_generation_prompt %}[assistant]{% endif %}";
  const auto spans =
      spans_of("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}" + prompt);
  ASSERT_TRUE(spans.has_value());
  ASSERT_EQ(spans->size(), 1U);
  EXPECT_EQ((*spans)[0].begin, 19U);
  EXPECT_EQ((*spans)[0].end, 22U);
  // A text that looks different once more messages follow cannot be told.
  EXPECT_FALSE(
      spans_of("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"));
  EXPECT_FALSE(spans_of("{% if messages | length < 3 %}{{ raise_exception('few') }}{% endif %}x"));
  // Nor where a prompt for an answer is longer than the answer.
  EXPECT_FALSE(
      spans_of("{% for m in messages %}{{ m.content }}{% endfor %}"
               "{% if add_generation_prompt %}cdef{% endif %}"));
  const auto marked = spans_of(
      "{% for m in messages %}{% generation %}{% if loop.index0 == 1 %}{{ m.content }}{% endif %}"
      "{% endgeneration %}{% endfor %}");
  ASSERT_TRUE(marked.has_value());
  ASSERT_EQ(marked->size(), 3U);
  EXPECT_EQ((*marked)[1].end, 3U);
}

TEST(AssistantMask, the_last_turn_is_told_however_earlier_ones_are_written) {
  const Chat chat = chat_of(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
      {"role": "assistant", "content": "d"}, {"role": "assistant", "content": "e"}]})");
  ChatFiles files;  // as Qwen3 thinks, in its last turn alone
  files.templates["default"] = {
      "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
      "{% set ns.last = loop.index %}{% endif %}{% endfor %}"
      "{% for m in messages %}[{{ m.role[0] }}]{% if loop.index > ns.last %}<>{% endif %}"
      "{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[a]{% endif %}",
      "t"};
  const ChatTemplate made(files);
  const jinja::Rendered whole = made.render(chat);
  EXPECT_EQ(whole.text, "[u]a[a]b[u]c[a]<>d[a]<>e");
  EXPECT_FALSE(assistant_spans(made, chat, whole));
  const auto spans = assistant_spans(made, chat, whole, last_turn(chat));
  ASSERT_TRUE(spans.has_value());
  ASSERT_EQ(spans->size(), 2U);
  EXPECT_EQ(whole.text.substr((*spans)[0].begin, (*spans)[0].size()), "<>d");
  EXPECT_EQ(whole.text.substr((*spans)[1].begin, (*spans)[1].size()), "<>e");
}

TEST(AssistantMask, a_token_counts_if_it_holds_a_byte) {
  EncodedText tokens;
  tokens.spans = {{0, 2}, {2, 4}, {4, 4}, {4, 8}, {8, 9}};
  EXPECT_EQ(mask_of(tokens, {{1, 2}, {4, 5}}),
            (std::vector<bool>{true, false, false, true, false}));
  EXPECT_EQ(mask_of(tokens, {{3, 3}}), (std::vector<bool>(5, false)));
}

}  // namespace
}  // namespace moesaic
