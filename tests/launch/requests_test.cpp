// Lines of requests, and the requests they make.

#include "launch/input/requests.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

RequestFields parse(const std::string& text) {
  return parse_request_fields(Json::parse(text, "file line 3"));
}

std::string requests_error(const std::string& text) {
  return test::error_message([&] { (void)parse(text); }, ErrorKind::file);
}

TEST(RequestFields, AreWhatTheLineSays) {
  const RequestFields fields = parse(
      R"({"version": 1, "prompt": "In", "id": "a\"1", "max_tokens": 5, "temperature": 0.5,
          "top_k": 7, "top_p": 0.9, "min_p": 0.1, "seed": 11, "n": 3, "stop": ["x", "y"],
          "logprobs": 2, "repetition_penalty": 1.1, "frequency_penalty": 0.2,
          "presence_penalty": 0.3, "repeat_last_n": 64, "logit_bias": {"15": -1.5, "3": 2},
          "ignore_eos": true})");
  EXPECT_EQ(fields.prompt, "In");
  EXPECT_FALSE(fields.prompt_tokens || fields.conversation);
  EXPECT_EQ(fields.id, "\"a\\\"1\"");
  EXPECT_EQ(fields.max_tokens, 5);
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_k, 7);
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.seed, 11);
  EXPECT_EQ(fields.n, 3);
  EXPECT_EQ(fields.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(fields.logprobs, 2);
  EXPECT_EQ(fields.repetition_penalty, 1.1);
  EXPECT_EQ(fields.frequency_penalty, 0.2);
  EXPECT_EQ(fields.presence_penalty, 0.3);
  EXPECT_EQ(fields.repeat_last_n, 64);
  EXPECT_EQ(fields.logit_bias, (std::vector<LogitBias>{{15, -1.5F}, {3, 2}}));
  EXPECT_EQ(fields.ignore_eos, true);
}

TEST(RequestFields, PromptsMayBeTokensOrMessages) {
  EXPECT_EQ(parse(R"({"prompt": [3, 1, 2], "id": 7})").prompt_tokens,
            (std::vector<std::int32_t>{3, 1, 2}));
  EXPECT_EQ(parse(R"({"prompt": [3], "id": 7})").id, "7");
  const RequestFields chat = parse(
      R"({"messages": [{"role": "user", "content": "Hi"}], "tools": null, "temperature": null})");
  ASSERT_TRUE(chat.conversation.has_value());
  EXPECT_EQ(chat.conversation->at("messages").size(), 1);
  EXPECT_FALSE(chat.temperature.has_value()) << "null: as if it were not there";
  // As `tokenize --chat` reads the same file.
  const std::string question = R"({"messages": [{"role": "user", "content": "Hi"}], )";
  EXPECT_TRUE(parse(question + R"("add_generation_prompt": true})").conversation.has_value());
  EXPECT_EQ(requests_error(question + R"("add_generation_prompt": false})"),
            "file line 3: add_generation_prompt: is false, but an answer follows: leave it out");
  EXPECT_EQ(parse(R"({"prompt": "", "stop": "x"})").stop, std::vector<std::string>{"x"});
}

TEST(RequestFields, WhatIsWrongIsNamed) {
  EXPECT_EQ(requests_error(R"({"prompt": "In", "max_token": 5})"),
            "file line 3: unknown field \"max_token\"; did you mean \"max_tokens\"?");
  EXPECT_EQ(requests_error(R"({"prompt": "In", "best_of": 5})"),
            "file line 3: unknown field \"best_of\"");
  EXPECT_EQ(requests_error(R"({"id": 1})"), "file line 3: neither \"prompt\" nor \"messages\"");
  EXPECT_EQ(requests_error(R"({"prompt": "a", "messages": []})"),
            "file line 3: both \"prompt\" and \"messages\"");
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::string>>{{"prompt", "5"},
                                                        {"prompt", "[1, -1]"},
                                                        {"prompt", "[1, 4294967296]"},
                                                        {"prompt", "[\"a\"]"},
                                                        {"id", "1.5"},
                                                        {"max_tokens", "-2"},
                                                        {"max_tokens", "\"5\""},
                                                        {"temperature", "\"hot\""},
                                                        {"top_k", "1.5"},
                                                        {"seed", "-2"},
                                                        {"n", "0"},
                                                        {"stop", "{}"},
                                                        {"stop", "[1]"},
                                                        {"stop", "\"\""},
                                                        {"stop", "[\"a\", \"\"]"},
                                                        {"logprobs", "-1"},
                                                        {"logprobs", "true"},
                                                        {"logprobs", "1001"},
                                                        {"logit_bias", "[1]"},
                                                        {"logit_bias", "{\"a\": 1}"},
                                                        {"logit_bias", "{\"1\": \"a\"}"},
                                                        {"logit_bias", "{\"1\": 1e300}"},
                                                        {"ignore_eos", "1"},
                                                        {"version", "2"},
                                                        {"repeat_last_n", "-2"}}) {
    const std::string prompt = field == "prompt" ? "" : R"("prompt": "In", )";
    const std::string message = requests_error("{" + prompt + "\"" + field + "\": " + value + "}");
    EXPECT_TRUE(message.starts_with("file line 3: " + field)) << value << ": " << message;
  }
}

RequestDefaults defaults() {
  return {.sampling = {.temperature = 0.7, .top_k = 20, .seed = 4, .repetition_penalty = 1.2},
          .max_tokens = 10,
          .stop = {"END"},
          .stop_tokens = {2},
          .context_tokens = 32,
          .vocab_size = 100};
}

TEST(Requests, LinesComeBeforeOptions) {
  const SampledRequest plain = make_request({}, {5, 6}, 3, defaults());
  EXPECT_EQ(plain.samples, 1);
  EXPECT_EQ(plain.first.tokens, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(plain.first.max_new_tokens, 10);
  EXPECT_EQ(plain.first.sampling.temperature, 0.7);
  EXPECT_EQ(plain.first.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(plain.first.sampling.seed, 4U);
  EXPECT_EQ(plain.first.stream, 3U);
  EXPECT_EQ(plain.first.stop_tokens, std::vector<std::int64_t>{2});
  EXPECT_EQ(plain.first.stop_strings, std::vector<std::string>{"END"});
  EXPECT_FALSE(plain.first.group || plain.first.logprobs);

  RequestFields fields{.max_tokens = 4, .temperature = 0.0, .seed = 9, .n = 2, .logprobs = 5};
  fields.stop = std::vector<std::string>{};
  fields.ignore_eos = true;
  fields.logit_bias = {{7, 1}};
  const SampledRequest said = make_request(fields, {5}, 3, defaults());
  EXPECT_EQ(said.samples, 2);
  EXPECT_EQ(said.first.max_new_tokens, 4);
  EXPECT_EQ(said.first.sampling.temperature, 0);
  EXPECT_EQ(said.first.sampling.top_k, 20);
  EXPECT_EQ(said.first.sampling.seed, 9U);
  EXPECT_EQ(said.first.stream, 0U) << "wherever the line stands";
  EXPECT_EQ(said.first.logprobs, 5);
  EXPECT_EQ(said.first.group, 3);
  EXPECT_TRUE(said.first.stop_tokens.empty());
  EXPECT_TRUE(said.first.stop_strings.empty());
  EXPECT_EQ(said.first.sampling.logit_bias, (std::vector<LogitBias>{{7, 1}}));
  EXPECT_EQ(said.sample(0).stream, said.first.stream);
  EXPECT_NE(said.sample(1).stream, said.first.stream);
  EXPECT_NE(said.sample(1).stream, make_request({}, {5}, 1, defaults()).first.stream);
}

TEST(Requests, GoOnUntilTheContextIsFull) {
  RequestFields fields;
  fields.max_tokens = -1;
  const auto new_tokens = [&](std::size_t length) {
    return make_request(fields, std::vector<std::int32_t>(length, 1), 0, defaults())
        .first.max_new_tokens;
  };
  EXPECT_EQ(new_tokens(30), 2);
  EXPECT_EQ(new_tokens(32), 1) << "too many, which is told where the prompt is";
  fields.max_tokens = 50;
  EXPECT_EQ(new_tokens(30), 50) << "as asked for";
}

TEST(Requests, AListHasAllSamplesInOrder) {
  RequestList list(defaults());
  EXPECT_EQ(list.demand().requests, 0);
  const auto prompt = [](const std::string& fields) {
    return Prompt{.text = "a",
                  .where = "file line 2",
                  .said = std::make_shared<const RequestFields>(
                      parse("{\"prompt\": \"a\", " + fields + "}"))};
  };
  const auto add = [&](const Prompt& added, const std::vector<std::int32_t>& tokens) {
    std::int64_t most = 0;
    list.add(added, tokens, [&](std::int64_t length, std::int64_t new_tokens) {
      EXPECT_EQ(length, std::ssize(tokens));
      most = new_tokens;
    });
    return most;
  };
  EXPECT_EQ(add({.text = "a", .where = "file line 1"}, {1, 2, 3, 4}), 10);
  EXPECT_EQ(add(prompt("\"n\": 3"), {5, 6}), 10);
  EXPECT_EQ(test::error_message([&] { add(prompt("\"top_p\": 0"), {7}); }, ErrorKind::usage),
            "file line 2: top-p must be above 0 and at most 1, not 0");
  const auto refuse = [](std::int64_t, std::int64_t) { fail(ErrorKind::usage, "too long"); };
  EXPECT_EQ(
      test::error_message([&] { list.add(prompt("\"n\": 9"), {7}, refuse); }, ErrorKind::usage),
      "too long");
  EXPECT_EQ(add(prompt("\"max_tokens\": 20"), {7}), 20);
  list.add_bad({.text = "b", .where = "file line 5", .error = Error(ErrorKind::file, "is bad")});
  EXPECT_EQ(list.place(5).prompt, 3);
  EXPECT_EQ(list.demand().prompts, 4);
  EXPECT_EQ(list.demand().requests, 6);
  EXPECT_EQ(list.demand().longest_prompt, 4);
  EXPECT_EQ(list.demand().longest_text, 21);
  EXPECT_EQ(list.demand().most_new_tokens, 10 + 30 + 20);
  EXPECT_EQ(list.demand().most_samples, 3);
  const std::vector<std::pair<std::int64_t, std::int64_t>> places = {
      {0, 0}, {1, 0}, {1, 1}, {1, 2}, {2, 0}};
  std::set<std::uint64_t> streams;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    EXPECT_EQ(list.place(number).prompt, places[i].first);
    EXPECT_EQ(list.place(number).sample, places[i].second);
    EXPECT_EQ(list.place(number).samples, places[i].first == 1 ? 3 : 1);
    EXPECT_TRUE(streams.insert(list.request(number).stream).second);
    EXPECT_EQ(std::ssize(list.request(number).tokens), list.prompt_tokens(number));
  }
}

TEST(Requests, PromptsAreForgottenWithTheirLastSample) {
  RequestList list(defaults());
  const auto add = [&](const std::string& text, std::int64_t samples) {
    RequestFields fields;
    fields.n = samples;
    list.add({.text = text, .where = "", .said = std::make_shared<const RequestFields>(fields)},
             {1, 2}, [](std::int64_t, std::int64_t) {});
  };
  add("a", 2);
  add("b", 3);
  list.add_bad({.text = "c", .where = "", .error = Error(ErrorKind::file, "is bad")});
  for (const std::int64_t number : {3, 2, 5}) list.forget(number);
  EXPECT_EQ(list.kept(), 2) << "the bad one is gone";
  EXPECT_TRUE(list.keeps(4));
  list.forget(4);
  EXPECT_EQ(list.kept(), 1);
  EXPECT_FALSE(list.keeps(2) || list.keeps(4) || list.keeps(5) || list.keeps(6));
  EXPECT_EQ(list.prompt(1).text, "a");
  add("d", 1);
  EXPECT_EQ(list.place(6).prompt, 3) << "numbers go on";
  EXPECT_EQ(list.request(6).stream, 3U);
  EXPECT_NE(test::error_message([&] { (void)list.place(4); }, ErrorKind::internal), "");
  EXPECT_EQ(list.bad().prompts(), 1);
  EXPECT_EQ(test::error_message([&] { list.bad().require_a_good_one(1); }), "is bad");
}

TEST(Requests, ValuesOutOfRangeAreRefused) {
  const auto message = [](const std::string& line) {
    return test::error_message([&] { (void)make_request(parse(line), {5}, 0, defaults()); },
                               ErrorKind::usage);
  };
  EXPECT_EQ(message(R"({"prompt": "a", "top_p": 0})"),
            "top-p must be above 0 and at most 1, not 0");
  EXPECT_NE(message(R"({"prompt": "a", "temperature": -1})"), "");
  EXPECT_NE(message(R"({"prompt": "a", "logit_bias": {"100": 1}})"), "");
}

TEST(Requests, SeedsOfLinesCanBeDrawn) {
  RequestFields fields;
  fields.seed = -1;
  const auto seed = [&] { return make_request(fields, {5}, 0, defaults()).first.sampling.seed; };
  EXPECT_NE(seed(), seed()) << "once in four billion times they are equal";
}

}  // namespace
}  // namespace moesaic
