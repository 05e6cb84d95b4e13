// Bodies of calls of OpenAI's API: what they ask for, and what is refused.

#include "launch/serve/api_request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "src/jinja/value.h"

namespace moesaic {
namespace {

ApiRequest completion(const std::string& body) {
  return parse_api_request(ApiKind::completion, body);
}
ApiRequest chat(const std::string& body) {
  return parse_api_request(ApiKind::chat, body);
}

std::string refusal(ApiKind kind, const std::string& body) {
  try {
    (void)parse_api_request(kind, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << body;
    return error.what();
  }
  ADD_FAILURE() << "taken: " << body;
  return "";
}

const jinja::Value& content_of(const ApiRequest& request, std::size_t message) {
  return *request.chat->messages.sequence()->items.at(message).dict()->find("content");
}

TEST(ApiRequest, prompts_are_texts_or_tokens_or_lists_of_them) {
  EXPECT_EQ(completion(R"({"prompt": "a"})").prompts, (std::vector<ApiPrompt>{"a"}));
  EXPECT_EQ(completion(R"({"prompt": ["a", "b"]})").prompts, (std::vector<ApiPrompt>{"a", "b"}));
  EXPECT_EQ(completion(R"({"prompt": [1, 2]})").prompts,
            (std::vector<ApiPrompt>{std::vector<std::int32_t>{1, 2}}));
  EXPECT_EQ(completion(R"({"prompt": [[1, 2], "a"]})").prompts,
            (std::vector<ApiPrompt>{std::vector<std::int32_t>{1, 2}, "a"}));
}

TEST(ApiRequest, has_what_the_body_says) {
  const ApiRequest request = completion(
      R"({"prompt": "a", "model": "m", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "n": 2,
          "stream": true, "stream_options": {"include_usage": true}, "logprobs": 3, "echo": false,
          "stop": ["x", "y"], "presence_penalty": 1, "frequency_penalty": 0.5, "seed": 9,
          "logit_bias": {"4": -100}, "user": "u", "best_of": 1, "suffix": null, "top_k": 4,
          "min_p": 0.1})");
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(request.fields.max_tokens, 7);
  EXPECT_EQ(request.fields.temperature, 0.5);
  EXPECT_EQ(request.fields.n, 2);
  EXPECT_EQ(request.fields.logprobs, 3);
  EXPECT_EQ(request.fields.seed, 9);
  EXPECT_EQ(request.fields.stop, (std::vector<std::string>{"x", "y"}));
}

TEST(ApiRequest, null_says_nothing) {
  const ApiRequest request = chat(
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": null, "stop": null,
          "stream": null, "tools": null, "logprobs": null, "temperature": null})");
  EXPECT_FALSE(request.fields.max_tokens);
  EXPECT_FALSE(request.fields.logprobs);
  EXPECT_FALSE(request.stream);
}

TEST(ApiRequest, chats_have_names_of_their_own) {
  const ApiRequest request = chat(
      R"({"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 5,
          "logprobs": true, "top_logprobs": 2, "response_format": {"type": "text"}})");
  EXPECT_EQ(request.fields.max_tokens, 5);
  EXPECT_EQ(request.fields.logprobs, 2);
  EXPECT_TRUE(request.chat->add_generation_prompt);
  EXPECT_EQ(
      chat(R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true})").fields.logprobs,
      0);
}

TEST(ApiRequest, parts_of_a_content_are_joined) {
  const ApiRequest request = chat(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content":
          [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})");
  EXPECT_EQ(*content_of(request, 0).text(), "s");
  EXPECT_EQ(*content_of(request, 1).text(), "a\nb");
}

TEST(ApiRequest, arguments_of_calls_are_objects_for_the_template) {
  const ApiRequest request = chat(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,
          "tool_calls": [{"id": "1", "type": "function", "function":
              {"name": "{}", "arguments": "{\"city\": \"Paris\"}"}},
              {"id": "2", "type": "function", "function": {"name": "w", "arguments": "{"}}]}]})");
  const auto& message = *request.chat->messages.sequence()->items.at(1).dict();
  const auto function = [&](std::size_t index) {
    return *message.find("tool_calls")
                ->sequence()
                ->items.at(index)
                .dict()
                ->find("function")
                ->dict();
  };
  EXPECT_EQ(*function(0).find("arguments")->dict()->find("city")->text(), "Paris");
  EXPECT_EQ(*function(0).find("name")->text(), "{}");
  EXPECT_EQ(*function(1).find("arguments")->text(), "{");
}

TEST(ApiRequest, tools_go_to_the_template_unless_none_is_to_be_called) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}])";
  EXPECT_NE(chat(body + "}").chat->tools.sequence(), nullptr);
  EXPECT_NE(chat(body + R"(, "tool_choice": "auto"})").chat->tools.sequence(), nullptr);
  EXPECT_TRUE(chat(body + R"(, "tool_choice": "none"})").chat->tools.is_none());
}

TEST(ApiRequest, efforts_and_more_go_to_the_template) {
  const ApiRequest request = chat(
      R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "low",
          "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_EQ(*request.chat->variables.find("reasoning_effort")->text(), "low");
  EXPECT_FALSE(*request.chat->variables.find("enable_thinking")->boolean());
}

TEST(ApiRequest, refuses_with_the_name_of_the_field) {
  const std::vector<std::pair<std::string, std::string>> completions = {
      {"", "not valid JSON"},
      {"[]", "no JSON object"},
      {"{}", "no \"prompt\""},
      {R"({"prompt": null})", "no \"prompt\""},
      {R"({"prompt": 3})", "request: prompt: neither a text"},
      {R"({"prompt": [[]]})", "request: prompt[0]: a prompt without tokens"},
      {R"({"prompt": [1, "a"]})", "request: prompt[1]: expected an integer"},
      {R"({"prompt": [4294967296]})", "request: prompt[0]: "},
      {R"({"prompt": "a", "promt": "b"})", "request: promt: unknown field"},
      {R"({"prompt": "a", "messages": []})", "request: messages: unknown field"},
      {R"({"prompt": "a", "id": 1})", "request: id: unknown field"},
      {R"({"prompt": "a", "best_of": 3})", "request: best_of: only 1 is there"},
      {R"({"prompt": "a", "suffix": "b"})", "request: suffix: only \"\" is there"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens: 0 tokens are no text"},
      {R"({"prompt": "a", "max_tokens": "7"})", "request: max_tokens: "},
      {R"({"prompt": "a", "n": 129})", "n: more than 128"},
      {R"({"prompt": "a", "stream_options": {"usage": true}})", "stream_options.usage: unknown"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs: more than 20"},
      {R"({"prompt": "a", "stop": ")" + std::string(1025, 'x') + "\"}",
       "stop: a text of more than"},
      {R"({"prompt": "a", "stop": [""]})", "request: stop[0]: "}};
  for (const auto& [body, text] : completions) {
    EXPECT_NE(refusal(ApiKind::completion, body).find(text), std::string::npos)
        << body << ": " << refusal(ApiKind::completion, body);
  }
  const std::string start = R"({"messages": [{"role": "user", "content": "a"}])";
  const std::vector<std::pair<std::string, std::string>> chats = {
      {"{}", "messages"},
      {R"({"messages": []})", "request: messages: "},
      {R"({"messages": ["a"]})", "request: messages[0]: "},
      {R"({"messages": [{"content": "a"}]})", "messages[0]: no role"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0]: a part of its content is no text"},
      {start + R"(, "prompt": "a"})", "request: prompt: unknown field"},
      {start + R"(, "functions": []})", "request: functions: unknown field"},
      {start + R"(, "tool_choice": "required"})", "request: tool_choice: only "},
      {start + R"(, "tool_choice": {"type": "function"}})", "request: tool_choice: only "},
      {start + R"(, "response_format": {"type": "json_object"}})",
       "request: response_format.type: only \"text\""},
      {start + R"(, "logprobs": 3})", "request: logprobs: "},
      {start + R"(, "logprobs": true, "top_logprobs": 21})", "request: top_logprobs: "},
      {start + R"(, "max_tokens": 3, "max_completion_tokens": 3})", "both max_tokens and"},
      {start + R"(, "top_logprobs": 3})", "top_logprobs go with \"logprobs\": true"},
      {start + R"(, "add_generation_prompt": false})", "request: add_generation_prompt: only"}};
  for (const auto& [body, text] : chats) {
    EXPECT_NE(refusal(ApiKind::chat, body).find(text), std::string::npos)
        << body << ": " << refusal(ApiKind::chat, body);
  }
}

}  // namespace
}  // namespace moesaic
