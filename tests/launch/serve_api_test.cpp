// OpenAI's protocol between a client and a desk, where the test is both.

#include "launch/serve/serve_api.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "src/generate/step_engine.h"

namespace moesaic {
namespace {

const std::string kModel = MOESAIC_TEST_DATA "/demo-model";

/// What a client gets.
class HeardAnswer : public HttpAnswer {
 public:
  void send(HttpResponse response) override {
    if (!has_begun_) {
      whole = std::move(response);
      return;
    }
    events.push_back(response.body);
    is_over = true;
  }
  void begin_events() override { has_begun_ = true; }
  void send_event(std::string_view data) override { events.emplace_back(data); }
  void end_events() override { is_over = true; }
  void on_gone(std::function<void()> call) override { gone = std::move(call); }

  [[nodiscard]] Json json() const { return Json::parse(whole.body, "answer"); }

  HttpResponse whole{.status = 0, .content_type = "", .body = ""};
  std::vector<std::string> events;
  bool is_over = false;
  std::function<void()> gone;

 private:
  bool has_begun_ = false;
};

class ServeApiTest : public testing::Test {
 protected:
  static ServeOffer offer() {
    ServeOffer made{.model = "demo",
                    .api_key = "",
                    .vocab_size = 65536,
                    .completions = {.max_tokens = 16, .vocab_size = 65536},
                    .chats = {.max_tokens = -1, .vocab_size = 65536},
                    .conversations = {}};
    return made;
  }
  /// Nothing is done aside: at once.
  ServeApi::Parts parts(const ChatTemplate* chat_template) {
    const auto now = [](const std::function<void()>& work) { work(); };
    return {.tokenizer = tokenizer_,
            .chat_template = chat_template,
            .desk = desk_,
            .post = now,
            .post_aside = now};
  }
  void SetUp() override { api_.open(64, 2); }

  std::shared_ptr<HeardAnswer> ask(const std::string& method, const std::string& path,
                                   const std::string& body = "", const std::string& key = "") {
    auto answer = std::make_shared<HeardAnswer>();
    api_.handle({.method = method, .path = path, .authorization = key, .body = body}, answer);
    return answer;
  }
  std::shared_ptr<HeardAnswer> complete(const std::string& body) {
    return ask("POST", "/v1/completions", body);
  }
  /// What the engine does with ticket `ticket`.
  void finish(Ticket ticket, const std::string& text, StopReason reason = StopReason::length) {
    Finished finished;
    finished.reason = reason;
    finished.tokens = {1, 2};
    finished.text = text;
    finished.rest = text.substr(text.size() / 2);
    api_.take(ticket, NewToken{.request = 0, .token = 1, .text = text.substr(0, text.size() / 2)});
    api_.take(ticket, finished);
  }

  Tokenizer tokenizer_ = Tokenizer::from_directory(kModel);
  ChatTemplate template_ = ChatTemplate::from_directory(kModel);
  RequestDesk desk_{4};
  ServeApi api_{parts(&template_), offer()};
};

TEST_F(ServeApiTest, answers_with_all_choices_when_the_last_has_ended) {
  const auto answer = complete(R"({"prompt": ["In the", "And"], "n": 2, "max_tokens": 2})");
  EXPECT_EQ(desk_.waiting(), 4);
  for (const Ticket ticket : {2, 0, 3}) finish(ticket, "text" + std::to_string(ticket));
  EXPECT_EQ(answer->whole.status, 0);
  finish(1, "text1", StopReason::end_of_sequence);
  const Json reply = answer->json();
  EXPECT_EQ(reply.at("object").as_string(), "text_completion");
  EXPECT_EQ(reply.at("model").as_string(), "demo");
  ASSERT_EQ(reply.at("choices").size(), 4);
  for (std::int64_t i = 0; i < 4; ++i) {
    const Json choice = reply.at("choices").at(i);
    EXPECT_EQ(choice.at("index").as_int(), i);
    EXPECT_EQ(choice.at("text").as_string(), "text" + std::to_string(i));
    EXPECT_EQ(choice.at("finish_reason").as_string(), i == 1 ? "stop" : "length");
  }
  EXPECT_EQ(reply.at("usage").at("completion_tokens").as_int(), 8);
}

TEST_F(ServeApiTest, streams_chats_piece_by_piece) {
  const auto answer =
      ask("POST", "/v1/chat/completions",
          R"({"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 2, "stream": true,
              "stream_options": {"include_usage": true}})");
  ASSERT_EQ(answer->events.size(), 1U);
  const auto delta = [&](std::size_t event) {
    const Json choices = Json::parse(answer->events.at(event), "event").at("choices");
    return choices.at(std::int64_t{0}).at("delta");
  };
  EXPECT_EQ(delta(0).at("role").as_string(), "assistant");
  finish(0, "abcd");
  ASSERT_EQ(answer->events.size(), 5U);
  EXPECT_EQ(delta(1).at("content").as_string(), "ab");
  EXPECT_EQ(delta(2).at("content").as_string(), "cd");
  const Json usage = Json::parse(answer->events[3], "event");
  EXPECT_EQ(usage.at("choices").size(), 0);
  EXPECT_EQ(usage.at("usage").at("completion_tokens").as_int(), 2);
  EXPECT_EQ(answer->events[4], "[DONE]");
  EXPECT_TRUE(answer->is_over);
}

TEST_F(ServeApiTest, turns_of_a_conversation_are_a_group) {
  const std::string user = R"({"role": "user", "content": "Who?"})";
  const std::string more =
      R"(, {"role": "assistant", "content": "I."}, {"role": "user", "content": "Why?"})";
  for (const std::string& messages :
       {user, user + more, R"({"role": "system", "content": "s"}, )" + user}) {
    (void)ask("POST", "/v1/chat/completions",
              R"({"max_tokens": 1, "messages": [)" + messages + "]}");
  }
  RequestFeed feed = desk_.feed({});
  const auto group = feed.next()->group;
  EXPECT_TRUE(group);
  EXPECT_EQ(feed.next()->group, group);
  EXPECT_NE(feed.next()->group, group);
}

TEST_F(ServeApiTest, completions_have_log_probabilities_of_their_own_form) {
  const auto answer =
      complete(R"({"prompt": [1, 2], "max_tokens": 0, "echo": true, "logprobs": 1})");
  api_.take(0, PromptLogprob{.request = 0, .position = 1, .logprob = {2, -0.1F}});
  api_.take(0, PromptLogprob{.request = 0, .position = 1, .logprob = {3, -0.05F}});
  api_.take(0, PromptLogprob{.request = 0, .position = 2, .logprob = {4, -9}});  // beyond it
  api_.take(0, PromptLogprob{.request = 0, .position = 2, .logprob = {3, -1}});
  api_.take(0, Finished{});
  const Json choice = answer->json().at("choices").at(std::int64_t{0});
  EXPECT_EQ(choice.at("text").as_string(),
            tokenizer_.decode(std::vector<std::int32_t>{1, 2}, false));
  const Json logprobs = choice.at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").size(), 2);
  EXPECT_TRUE(logprobs.at("token_logprobs").at(std::int64_t{0}).is_null());
  const double own = logprobs.at("token_logprobs").at(1).as_double();
  EXPECT_EQ(own, static_cast<double>(-0.1F));
  bool is_among_likeliest = false;
  logprobs.at("top_logprobs").at(1).for_each([&](const std::string&, const Json& value) {
    is_among_likeliest = is_among_likeliest || value.as_double() == own;
  });
  EXPECT_TRUE(is_among_likeliest);
  EXPECT_EQ(logprobs.at("top_logprobs").at(1).size(), 2);
  EXPECT_EQ(logprobs.at("text_offset").at(std::int64_t{0}).as_int(), 0);
}

TEST_F(ServeApiTest, offsets_are_those_of_the_text) {
  const std::int32_t end = *tokenizer_.token_id("<|im_end|>");
  const std::vector<std::int32_t> tokens = tokenizer_.encode("Ünï<|im_end|>x");
  const auto answer =
      complete(R"({"prompt": "Ünï<|im_end|>x", "max_tokens": 2, "echo": true, "logprobs": 0})");
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    api_.take(
        0, PromptLogprob{
               .request = 0, .position = static_cast<std::int64_t>(i), .logprob = {tokens[i], -1}});
  }
  Finished finished;
  finished.text = "y";
  finished.tokens = {end, tokens.back()};
  finished.logprobs = {{{end, -1}}, {{tokens.back(), -1}}};
  api_.take(0, finished);
  const Json choice = answer->json().at("choices").at(std::int64_t{0});
  EXPECT_EQ(choice.at("text").as_string(), "Ünï<|im_end|>xy");
  const Json offsets = choice.at("logprobs").at("text_offset");
  const std::int64_t count = std::ssize(tokens);
  ASSERT_EQ(offsets.size(), count + 2);
  EXPECT_EQ(offsets.at(count - 2).as_int(), 3);   // <|im_end|>
  EXPECT_EQ(offsets.at(count - 1).as_int(), 13);  // x
  EXPECT_EQ(offsets.at(count).as_int(), 14);      // which the text leaves out
  EXPECT_EQ(offsets.at(count + 1).as_int(), 14);
}

TEST_F(ServeApiTest, texts_that_nobody_waits_for_are_withdrawn) {
  const auto answer = complete(R"({"prompt": "In the", "n": 2})");
  EXPECT_EQ(desk_.waiting(), 2);
  answer->gone();
  EXPECT_EQ(desk_.waiting(), 0);
  finish(0, "text");  // it may still be told of
  EXPECT_EQ(answer->whole.status, 0);
  EXPECT_NE(ask("GET", "/metrics")->whole.body.find("finished_total{finish_reason=\"abort\"} 2"),
            std::string::npos);
}

TEST_F(ServeApiTest, tells_how_many_texts_run_and_how_many_wait) {
  EXPECT_EQ(complete(R"({"prompt": "In", "n": 4})")->whole.status, 0);
  RequestFeed feed = desk_.feed({});
  for (int i = 0; i < 3; ++i) (void)feed.next();  // one ahead of two places
  const std::string metrics = ask("GET", "/metrics")->whole.body;
  EXPECT_NE(metrics.find("requests_running 2\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("requests_waiting 2\n"), std::string::npos) << metrics;
}

TEST_F(ServeApiTest, an_answer_may_not_take_the_memory_of_all) {
  api_.open(1'000'000, 2);
  EXPECT_EQ(complete(R"({"prompt": "In", "max_tokens": 100000, "logprobs": 10})")->whole.status,
            400);
  EXPECT_EQ(complete(R"({"prompt": "In", "max_tokens": 10000, "logprobs": 10})")->whole.status, 0);
  const std::string long_text(6 << 20U, 'a');
  EXPECT_EQ(complete(R"({"echo": true, "n": 3, "max_tokens": 1, "prompt": ")" + long_text + "\"}")
                ->whole.status,
            400);
}

TEST_F(ServeApiTest, texts_are_numbered_when_their_calls_are_taken) {
  (void)complete(R"({"prompt": "In", "max_tokens": 64})");  // refused
  (void)complete(R"({"prompt": ["In", "The"], "max_tokens": 1})");
  (void)complete(R"({"prompt": "In", "max_tokens": 1})");
  (void)complete(R"({"prompt": "In", "max_tokens": 1, "seed": 7})");
  RequestFeed feed = desk_.feed({});
  for (const std::uint64_t stream : {0U, 1U, 2U, 0U}) EXPECT_EQ(feed.next()->stream, stream);
}

TEST_F(ServeApiTest, refuses_what_has_no_room) {
  EXPECT_EQ(complete(R"({"prompt": ["In", "The"], "n": 3})")->whole.status, 400);  // never
  EXPECT_EQ(complete(R"({"prompt": "In", "n": 4})")->whole.status, 0);
  const auto answer = complete(R"({"prompt": "In"})");
  EXPECT_EQ(answer->whole.status, 503);
  ASSERT_EQ(answer->whole.headers.size(), 1U);
  EXPECT_EQ(answer->whole.headers[0].first, "Retry-After");
  EXPECT_EQ(desk_.waiting(), 4);
}

TEST_F(ServeApiTest, refuses_with_the_status_that_clients_know) {
  const std::string chat = "/v1/chat/completions";
  EXPECT_EQ(ask("GET", "/nothing")->whole.status, 404);
  EXPECT_EQ(ask("GET", chat)->whole.status, 405);
  EXPECT_EQ(complete("{")->whole.status, 400);
  EXPECT_EQ(complete(R"({"prompt": "In", "model": "other"})")->whole.status, 404);
  EXPECT_EQ(complete(R"({"prompt": "In", "max_tokens": 64})")->whole.status, 400);
  EXPECT_EQ(complete(R"({"prompt": [65536]})")->whole.status, 400);
  EXPECT_EQ(complete(R"({"prompt": ""})")->whole.status, 400);
  EXPECT_EQ(complete(R"({"prompt": "In", "temperature": -1})")->whole.status, 400);
  EXPECT_EQ(
      complete(R"({"prompt": "In", "echo": true, "logprobs": 1, "stream": true})")->whole.status,
      400);
  EXPECT_EQ(desk_.waiting(), 0);
  const Json error = complete("{")->json().at("error");
  EXPECT_EQ(error.at("type").as_string(), "invalid_request_error");
  EXPECT_EQ(error.at("code").as_int(), 400);
}

TEST_F(ServeApiTest, tells_of_damage_and_of_its_end) {
  const auto damaged = complete(R"({"prompt": "In", "n": 2})");
  Finished finished;
  finished.reason = StopReason::damaged;
  finished.damage = Damage{.position = 3, .place = "layer 1"};
  api_.take(0, finished);
  EXPECT_EQ(damaged->whole.status, 500);
  EXPECT_NE(damaged->whole.body.find("layer 1"), std::string::npos);
  const auto streaming = complete(R"({"prompt": "In", "stream": true})");
  const auto waiting = complete(R"({"prompt": "In"})");
  api_.close("it stops");
  EXPECT_EQ(waiting->whole.status, 503);
  ASSERT_EQ(streaming->events.size(), 1U);
  EXPECT_NE(streaming->events[0].find("it stops"), std::string::npos);
  EXPECT_TRUE(streaming->is_over);
  EXPECT_EQ(complete(R"({"prompt": "In"})")->whole.status, 503);
  EXPECT_EQ(ask("GET", "/health")->whole.status, 503);
}

TEST_F(ServeApiTest, waits_for_the_model) {
  ServeApi loading(parts(nullptr), offer());
  const auto ask_it = [&](const std::string& method, const std::string& path,
                          const std::string& body) {
    const auto answer = std::make_shared<HeardAnswer>();
    loading.handle({.method = method, .path = path, .authorization = "", .body = body}, answer);
    return answer->whole;
  };
  EXPECT_EQ(ask_it("GET", "/health", "").status, 503);
  EXPECT_EQ(ask_it("GET", "/v1/models", "").status, 200);
  EXPECT_EQ(ask_it("POST", "/v1/completions", R"({"prompt": "In"})").status, 503);
  loading.open(64, 2);
  EXPECT_EQ(ask_it("GET", "/health", "").status, 200);
  const HttpResponse chat =
      ask_it("POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_NE(chat.body.find("no chat template"), std::string::npos);
}

TEST_F(ServeApiTest, asks_for_its_key) {
  ServeOffer with_key = offer();
  with_key.api_key = "secret";
  ServeApi locked(parts(&template_), with_key);
  const auto status = [&](const std::string& path, const std::string& key) {
    const auto answer = std::make_shared<HeardAnswer>();
    locked.handle({.method = "GET", .path = path, .authorization = key, .body = ""}, answer);
    return answer->whole.status;
  };
  locked.open(64, 2);
  EXPECT_EQ(status("/health", ""), 200);
  for (const char* key :
       {"", "secret", "Bearer ", "Bearer secre", "Bearer secretx", "Bearer Secret"}) {
    EXPECT_EQ(status("/v1/models", key), 401) << key;
  }
  EXPECT_EQ(status("/v1/models", "Bearer secret"), 200);
  EXPECT_EQ(status("/v1/models/demo", "bearer secret"), 200);
  EXPECT_EQ(status("/v1/models/other", "Bearer secret"), 404);
}

TEST_F(ServeApiTest, tells_tokens_and_prompts) {
  const Json tokens = ask("POST", "/tokenize", R"({"content": "In the"})")->json().at("tokens");
  std::string ids;
  tokens.for_each([&](const std::string&, const Json& id) {
    ids += (ids.empty() ? "" : ", ") + std::to_string(id.as_int());
  });
  EXPECT_EQ(
      ask("POST", "/detokenize", "{\"tokens\": [" + ids + "]}")->json().at("content").as_string(),
      "In the");
  EXPECT_EQ(ask("POST", "/apply-template", R"({"messages": [{"role": "user", "content": "Who?"}]})")
                ->json()
                .at("prompt")
                .as_string(),
            "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace moesaic
