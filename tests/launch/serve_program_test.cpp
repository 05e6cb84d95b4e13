// `moesaic serve` as its clients meet it.

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/serve/http_client.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kCompletions = "/v1/completions";
const std::string kChats = "/v1/chat/completions";

/// A server on a port that was free.
class Served {
 public:
  /// `ranks` under mpirun, or one without it.
  explicit Served(std::optional<int> ranks, const Arguments& more = {})
      : program_(command(
            ranks,
            joined({"serve", "-m", kDemo, "--port", "0", "-t", "1", "--parallel", "3"}, more))) {
    EXPECT_TRUE(program_.wait_until([&] {
      return program_.err().find(" answers;") != std::string::npos;
    })) << program_.err();
    constexpr std::string_view kScheme = "http://";
    const std::string told = program_.err();
    const std::size_t begin = told.find(kScheme) + kScheme.size();
    address_ = told.substr(begin, told.find(' ', begin) - begin);
  }

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] RunningProgram& program() { return program_; }
  [[nodiscard]] Json post(const std::string& path, const std::string& body) const {
    const HttpReply reply = call(address_, "POST", path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body, "answer");
  }
  /// Of GET /metrics.
  [[nodiscard]] std::int64_t metric(const std::string& name) const {
    const std::string text = "\n" + call(address_, "GET", "/metrics").body;
    const std::string line = "\nmoesaic_" + name + " ";
    const std::size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << name << text;
    return std::stoll(text.substr(at + line.size()));
  }
  /// mpirun passes SIGUSR1 on; of SIGTERM and SIGINT it has an exit code of its own.
  ProgramResult stop(int signal = SIGUSR1) {
    program_.send(signal);
    return program_.wait();
  }

 private:
  static Arguments command(std::optional<int> ranks, const Arguments& arguments) {
    return ranks ? ranks_command(*ranks, arguments) : moesaic_command(arguments);
  }

  RunningProgram program_;
  std::string address_;
};

Json choice_of(const Json& reply, std::int64_t index = 0) {
  return reply.at("choices").at(index);
}

/// Lines of requests that moesaic generate and the server take alike.
std::vector<std::string> request_lines() {
  std::vector<std::string> lines;
  for (int i = 0; i < 9; ++i) {
    const std::string sampling =
        i % 2 == 0 ? R"("temperature": 0)"
                   : R"("temperature": 0.9, "top_p": 0.9, "seed": )" + std::to_string(i);
    lines.push_back(R"({"prompt": "And the )" + std::string(i % 3 == 0 ? "LORD" : "people of the") +
                    R"(", "max_tokens": )" + std::to_string(5 + i) + ", " + sampling + "}");
  }
  return lines;
}

std::vector<std::string> generated(const std::vector<std::string>& lines, const Arguments& more) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("requests.jsonl");
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_text(file, text);
  const ProgramResult result =
      run_moesaic(joined({"generate", "-m", kDemo, "-f", file, "--json"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  std::vector<std::string> texts;
  for (const std::string& line : lines_of(result.out)) {
    const Json record = Json::parse(line, "result");
    if (record.contains("text")) texts.push_back(record.at("text").as_string());
  }
  return texts;
}

TEST(ServeProgram, texts_are_those_of_generate_whatever_the_ranks_and_the_neighbours) {
  const std::vector<std::string> lines = request_lines();
  const std::vector<std::string> expected = generated(lines, {});
  ASSERT_EQ(expected.size(), lines.size());
  for (const int ranks : {1, 2, 3}) {
    Served served(ranks);
    std::vector<std::string> texts(lines.size());
    std::vector<std::thread> clients;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      clients.emplace_back([&, i] {
        texts[i] = choice_of(served.post(kCompletions, lines[i])).at("text").as_string();
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(texts, expected) << ranks;
    EXPECT_EQ(served.metric("requests_running"), 0);
    const ProgramResult end = served.stop();
    EXPECT_EQ(end.exit_code, 0) << end.text();
  }
}

TEST(ServeProgram, chats_are_those_of_generate_and_streams_are_whole) {
  const std::string chat =
      R"({"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Who?"}],
          "max_tokens": 12, "temperature": 0})";
  const std::string line =
      R"({"messages": [{"role": "system", "content": "Be short."}, )"
      R"({"role": "user", "content": "Who?"}], "max_tokens": 12, "temperature": 0})";
  const std::vector<std::string> expected = generated({line}, {"--chat"});
  Served served(2);
  const Json reply = served.post(kChats, chat);
  EXPECT_EQ(choice_of(reply).at("message").at("content").as_string(), expected.at(0));
  const std::string start = chat.substr(0, chat.size() - 1);
  const HttpReply stream =
      call(served.address(), "POST", kChats,
           start + R"(, "stream": true, "stream_options": {"include_usage": true}})");
  const std::vector<std::string> events = stream.events();
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  std::string reason;
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const Json choice = choice_of(Json::parse(events[i], "event"));
    if (const auto piece = choice.at("delta").find("content")) text += piece->as_string();
    if (const auto end = choice.find("finish_reason")) reason = end->as_string();
  }
  EXPECT_EQ(text, expected.at(0));
  EXPECT_EQ(reason, choice_of(reply).at("finish_reason").as_string());
  const Json usage = Json::parse(events[events.size() - 2], "event").at("usage");
  EXPECT_EQ(usage.at("total_tokens").as_int(), reply.at("usage").at("total_tokens").as_int());
}

TEST(ServeProgram, log_probabilities_of_a_prompt_are_those_of_score) {
  const TemporaryDirectory directory;
  const std::string text = "In the beginning God created the heaven and the earth.";
  const std::string file = directory.path_of("text");
  write_text(file, text);
  const ProgramResult score =
      run_moesaic({"score", "-m", kDemo, "-f", file, "--whole-file", "--json"});
  ASSERT_EQ(score.exit_code, 0) << score.text();
  const Json line = Json::parse(lines_of(score.out).at(0), "score");
  Served served(3);
  const Json reply =
      served.post(kCompletions,
                  R"({"prompt": ")" + text + R"(", "max_tokens": 0, "echo": true, "logprobs": 0})");
  EXPECT_EQ(choice_of(reply).at("text").as_string(), text);
  const Json logprobs = choice_of(reply).at("logprobs").at("token_logprobs");
  double loss = 0;
  for (std::int64_t i = 1; i < logprobs.size(); ++i) loss -= logprobs.at(i).as_double();
  const double mean = loss / static_cast<double>(logprobs.size() - 1);
  EXPECT_NEAR(mean, line.at("loss").as_double(), 1e-5);
}

/// 200,000 tokens.
const std::string kLong = R"({"prompt": "And", "max_tokens": 2000, "ignore_eos": true, "n": 100)";

std::int64_t generated_tokens(const ProgramResult& end) {
  constexpr std::string_view kLine = "\ngeneration";
  return std::stoll(end.err.substr(end.err.find(kLine) + kLine.size()));
}

TEST(ServeProgram, a_client_that_leaves_leaves_the_ranks_to_others) {
  for (const std::string more : {"}", R"(, "stream": true})"}) {
    Served served(2);
    {
      HttpClient client(served.address());
      client.send(http_request("POST", kCompletions, kLong + more));
      ASSERT_TRUE(
          served.program().wait_until([&] { return served.metric("requests_running") > 0; }));
    }
    // One that comes later waits for places.
    EXPECT_EQ(
        served.post(kCompletions, R"({"prompt": "And", "max_tokens": 1})").at("object").as_string(),
        "text_completion");
    EXPECT_EQ(served.metric("requests_finished_total{finish_reason=\"abort\"}"), 100);
    const ProgramResult end = served.stop();
    EXPECT_LT(generated_tokens(end), 200'000) << end.text();
  }
}

TEST(ServeProgram, a_bad_call_harms_nobody) {
  Served served(1, {"--model-name", "mine"});
  const std::vector<std::pair<std::string, int>> bodies = {
      {"{", 400},
      {R"({"prompt": "And", "model": "other"})", 404},
      {R"({"prompt": "And", "max_tokens": 100000000})", 400},
      {R"({"prompt": "And", "logit_bias": {"99999999": 1}})", 400},
      {R"({"prompt": [99999999]})", 400}};
  for (const auto& [body, status] : bodies) {
    EXPECT_EQ(call(served.address(), "POST", kCompletions, body).status, status) << body;
  }
  EXPECT_EQ(call(served.address(), "GET", "/health").status, 200);
  const Json models = Json::parse(call(served.address(), "GET", "/v1/models").body, "models");
  EXPECT_EQ(models.at("data").at(std::int64_t{0}).at("id").as_string(), "mine");
  EXPECT_EQ(
      served.post(kCompletions, R"({"prompt": "And", "model": "mine"})").at("model").as_string(),
      "mine");
}

TEST(ServeProgram, ends_well_when_it_is_asked_to) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Served served({});
    const ProgramResult end = served.stop(signal);
    EXPECT_EQ(end.exit_code, 0) << end.text();
    EXPECT_EQ(end.error_lines(), 0) << end.text();
  }
}

TEST(ServeProgram, ends_well_while_it_loads) {
  const ProgramResult end = run_ranks(2, {"serve", "-m", kDemo, "--port", "0", "--max-time", "0s"});
  EXPECT_EQ(end.exit_code, 0) << end.text();
  EXPECT_NE(end.err.find("stopped"), std::string::npos) << end.text();
}

TEST(ServeProgram, ends_with_an_answer_to_those_who_wait) {
  Served served(2);
  HttpClient client(served.address());
  client.send(
      http_request("POST", kCompletions,
                   R"({"prompt": "And", "max_tokens": 200, "ignore_eos": true, "n": 100})"));
  ASSERT_TRUE(served.program().wait_until([&] { return served.metric("requests_running") > 0; }));
  const ProgramResult end = served.stop();
  EXPECT_EQ(end.exit_code, 0) << end.text();
  EXPECT_EQ(client.read().status, 503);
}

TEST(ServeProgram, refuses_to_start_where_it_cannot_listen) {
  const TemporaryDirectory directory;
  Served first(1);
  const std::string port = first.address().substr(first.address().rfind(':') + 1);
  expect_failure(run_ranks(2, {"serve", "-m", kDemo, "--port", port}), 4,
                 {"cannot listen on 127.0.0.1 port " + port});
  expect_failure(run_moesaic({"serve", "-m", kDemo, "--port", "0", "--host", "no host"}), 4,
                 {"cannot listen on no host"});
  expect_failure(run_moesaic({"serve", "-m", kDemo, "--port", "0", "--host", ""}), 2, {"--host"});
  expect_failure(run_moesaic({"serve", "-m", kDemo, "--port", "65536"}), 2, {"--port", "65535"});
  const std::string key = directory.path_of("key");
  write_text(key, "\nkey\n");
  expect_failure(run_moesaic({"serve", "-m", kDemo, "--port", "0", "--api-key-file", key}), 3,
                 {"key", "empty"});
}

TEST(ServeProgram, asks_for_the_key_of_a_file) {
  const TemporaryDirectory directory;
  const std::string key = directory.path_of("key");
  write_text(key, "secret\n");
  Served served(1, {"--api-key-file", key});
  EXPECT_EQ(call(served.address(), "GET", "/health").status, 200);
  EXPECT_EQ(call(served.address(), "GET", "/v1/models").status, 401);
  EXPECT_EQ(
      call(served.address(), "GET", "/v1/models", "", "Authorization: Bearer secret\r\n").status,
      200);
}

}  // namespace
}  // namespace moesaic::test
