// The HTTP server with clients that behave, and with clients that do not.

#include "src/serve/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "tests/serve/http_client.h"

namespace moesaic::test {
namespace {

using Answer = std::shared_ptr<HttpAnswer>;
using std::chrono::milliseconds;

const HttpServer::Place kFreePort{.host = "127.0.0.1", .port = 0};

HttpResponse refuse(int status, std::string_view why) {
  return {.status = status, .content_type = "text/plain", .body = "refused: " + std::string(why)};
}

/// Says what it was asked.
void answer_echo(const HttpRequest& request, const Answer& answer) {
  answer->send({.content_type = "text/plain",
                .body = request.method + " " + request.path + " " + request.body});
}

const HttpHandler kEcho{.answer = answer_echo, .refuse = refuse};

/// Keeps the answers for the test to give.
class LaterAnswers {
 public:
  HttpHandler handler() {
    return {.answer =
                [this](const HttpRequest&, const Answer& answer) {
                  answer->on_gone([this] { gone_.set_value(); });
                  asked_.set_value(answer);
                },
            .refuse = refuse};
  }
  Answer wait() { return asked_.get_future().get(); }
  void wait_until_gone() { gone_.get_future().get(); }

 private:
  std::promise<Answer> asked_;
  std::promise<void> gone_;
};

TEST(HttpServer, answers_one_request_after_the_other_on_one_connection) {
  HttpServer server(kFreePort, {}, kEcho);
  HttpClient client(server.address());
  client.send(http_request("POST", "/a?b=c", "first"));
  const HttpReply first = client.read();
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("content-type"), "text/plain");
  EXPECT_EQ(first.body, "POST /a first");
  client.send(http_request("GET", "/b") + http_request("GET", "/c") + http_request("GET", "/d"));
  EXPECT_EQ(client.read().body, "GET /b ");
  EXPECT_EQ(client.read().body, "GET /c ");
  EXPECT_EQ(client.read().body, "GET /d ");
}

TEST(HttpServer, head_is_get_without_a_body) {
  HttpServer server(kFreePort, {}, kEcho);
  HttpClient client(server.address());
  client.send(http_request("HEAD", "/a"));
  const HttpReply head = client.read(false);
  EXPECT_EQ(head.headers.at("content-length"), "7");  // "GET /a "
  client.send(http_request("GET", "/b"));
  EXPECT_EQ(client.read().body, "GET /b ");
}

TEST(HttpServer, closes_where_the_client_wants_that) {
  HttpServer server(kFreePort, {}, kEcho);
  HttpClient client(server.address());
  client.send(http_request("GET", "/a", "", "Connection: close\r\n"));
  EXPECT_EQ(client.read().body, "GET /a ");
  EXPECT_TRUE(client.is_closed());
}

TEST(HttpServer, tells_clients_that_ask_to_go_on) {
  HttpServer server(kFreePort, {}, kEcho);
  HttpClient client(server.address());
  client.send("POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  client.send("body");
  EXPECT_EQ(client.read().body, "POST /a body");
}

TEST(HttpServer, takes_bodies_in_chunks) {
  HttpServer server(kFreePort, {}, kEcho);
  HttpClient client(server.address());
  client.send(
      "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n");
  EXPECT_EQ(client.read().body, "POST /a body");
}

TEST(HttpServer, refuses_what_is_no_request_or_too_large) {
  HttpServer server(kFreePort, {.body_bytes = 100, .header_bytes = 1000}, kEcho);
  const std::string chunks = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"\x01\x02\x03\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {chunks + "Content-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400},
      {chunks + "\r\nno number\r\n", 400},
      {chunks + "\r\nffffffffffffffff\r\n", 413},
      {http_request("POST", "/", std::string(101, 'x')), 413},
      {http_request("POST", "/", std::string(10'000'000, 'x')), 413},
      {http_request("GET", "/", "", "A: " + std::string(2000, 'x') + "\r\n"), 431}};
  for (const auto& [bytes, status] : cases) {
    HttpClient client(server.address());
    client.send(bytes);
    const HttpReply reply = client.read();
    EXPECT_EQ(reply.status, status) << bytes.substr(0, 60);
    EXPECT_TRUE(reply.body.starts_with("refused: ")) << reply.body;
    EXPECT_TRUE(client.is_closed());
  }
  EXPECT_EQ(call(server.address(), "GET", "/a").body, "GET /a ");
}

TEST(HttpServer, answers_with_what_a_handler_throws) {
  const auto fail_at = [](const HttpRequest& request, const Answer& answer) {
    if (request.path == "/stream") answer->begin_events();
    fail(ErrorKind::resource, "no memory for this");
  };
  HttpServer server(kFreePort, {}, {.answer = fail_at, .refuse = refuse});
  const HttpReply reply = call(server.address(), "GET", "/");
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.body, "refused: no memory for this");
  const HttpReply stream = call(server.address(), "GET", "/stream");
  EXPECT_EQ(stream.events(), (std::vector<std::string>{reply.body}));
}

TEST(HttpServer, sends_events_as_they_come) {
  LaterAnswers answers;
  HttpServer server(kFreePort, {}, answers.handler());
  HttpClient client(server.address());
  client.send(http_request("GET", "/"));
  const Answer answer = answers.wait();
  server.post([answer] {
    answer->begin_events();
    answer->send_event("one");
  });
  client.read_until("data: one\n\n");  // before there is another
  server.post([answer] {
    answer->send_event("two");
    answer->end_events();
    answer->send_event("too late");
  });
  const HttpReply reply = client.read();
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(reply.events(), (std::vector<std::string>{"one", "two"}));
}

TEST(HttpServer, sends_events_to_clients_that_know_no_chunks) {
  const auto stream = [](const HttpRequest&, const Answer& answer) {
    answer->begin_events();
    answer->send_event("one");
    answer->end_events();
  };
  HttpServer server(kFreePort, {}, {.answer = stream, .refuse = refuse});
  HttpClient client(server.address());
  client.send("GET / HTTP/1.0\r\n\r\n");
  const HttpReply reply = client.read();
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_EQ(reply.body, "data: one\n\n");
}

TEST(HttpServer, is_heard_from_while_there_is_no_event) {
  LaterAnswers answers;
  HttpServer server(kFreePort, {.silence = milliseconds(20)}, answers.handler());
  HttpClient client(server.address());
  client.send(http_request("GET", "/"));
  const Answer answer = answers.wait();
  server.post([answer] { answer->begin_events(); });
  client.read_until(":\n\n");
  server.post([answer] { answer->end_events(); });
  EXPECT_TRUE(client.read().events().empty());
}

TEST(HttpServer, tells_that_a_client_has_gone) {
  for (const bool streams : {false, true}) {
    LaterAnswers answers;
    HttpServer server(kFreePort, {}, answers.handler());
    auto client = std::make_unique<HttpClient>(server.address());
    client->send(http_request("GET", "/"));
    const Answer answer = answers.wait();
    if (streams) {
      server.post([answer] { answer->begin_events(); });
      client->read_until("\r\n\r\n");
    }
    client.reset();
    answers.wait_until_gone();
    server.post(
        [answer] { answer->send({.content_type = "text/plain", .body = "nobody hears it"}); });
  }
}

TEST(HttpServer, gives_a_client_up_that_takes_no_events) {
  LaterAnswers answers;
  HttpServer server(kFreePort, {.unsent_bytes = 100'000}, answers.handler());
  HttpClient client(server.address());
  client.send(http_request("GET", "/"));
  const Answer answer = answers.wait();
  server.post([answer] {
    answer->begin_events();
    for (int i = 0; i < 200; ++i) answer->send_event(std::string(100'000, 'x'));
  });
  answers.wait_until_gone();
}

TEST(HttpServer, takes_its_time_for_a_client_that_reads) {
  const auto stream = [](const HttpRequest&, const Answer& answer) {
    answer->begin_events();
    for (int i = 0; i < 200; ++i) answer->send_event(std::string(100'000, 'x'));
    answer->end_events();
  };
  HttpServer server(kFreePort, {}, {.answer = stream, .refuse = refuse});
  EXPECT_EQ(call(server.address(), "GET", "/").events().size(), 200U);
}

TEST(HttpServer, tells_that_a_client_has_gone_that_has_said_more) {
  LaterAnswers answers;
  HttpServer server(kFreePort, {}, answers.handler());
  {
    HttpClient client(server.address());
    client.send(http_request("GET", "/") + "\r\n");
    (void)answers.wait();
    client.send(http_request("GET", "/next"));
  }
  answers.wait_until_gone();
}

TEST(HttpServer, tells_at_once_that_a_client_has_gone_before) {
  LaterAnswers answers;
  HttpServer server(kFreePort, {}, answers.handler());
  auto client = std::make_unique<HttpClient>(server.address());
  client->send(http_request("GET", "/"));
  const Answer answer = answers.wait();
  client.reset();
  answers.wait_until_gone();
  std::promise<void> told;
  server.post([answer, &told] { answer->on_gone([&told] { told.set_value(); }); });
  told.get_future().get();
}

TEST(HttpServer, works_aside_while_it_answers) {
  HttpServer server(kFreePort, {}, kEcho);
  std::promise<void> go;
  std::promise<void> done;
  server.post_aside([&] {
    go.get_future().get();
    done.set_value();
  });
  EXPECT_EQ(call(server.address(), "GET", "/").status, 200);
  go.set_value();
  done.get_future().get();
}

TEST(HttpServer, waits_for_no_request_for_ever) {
  HttpServer server(kFreePort, {.patience = milliseconds(100)}, kEcho);
  HttpClient silent(server.address());
  HttpClient slow(server.address());
  slow.send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhal");
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(slow.is_closed());
}

TEST(HttpServer, lets_in_as_many_as_it_may) {
  HttpServer server(kFreePort, {.connections = 2}, kEcho);
  HttpClient first(server.address());
  first.send(http_request("GET", "/1"));
  EXPECT_EQ(first.read().body, "GET /1 ");
  {
    HttpClient second(server.address());
    second.send(http_request("GET", "/2"));
    EXPECT_EQ(second.read().body, "GET /2 ");
    HttpClient third(server.address());
    EXPECT_TRUE(third.is_closed());
  }
  first.send(http_request("GET", "/3", "", "Connection: close\r\n"));
  EXPECT_EQ(first.read().body, "GET /3 ");
  EXPECT_TRUE(first.is_closed());
}

TEST(HttpServer, sends_what_there_is_before_it_ends) {
  LaterAnswers answers;
  auto server = std::make_unique<HttpServer>(kFreePort, HttpLimits{}, answers.handler());
  HttpClient idle(server->address());
  HttpClient client(server->address());
  client.send(http_request("GET", "/"));
  Answer answer = answers.wait();
  server->post([answer = std::exchange(answer, nullptr)] {
    answer->send({.status = 503, .content_type = "text/plain", .body = "it ends"});
  });
  server.reset();
  EXPECT_EQ(client.read().body, "it ends");
  EXPECT_TRUE(client.is_closed());
  EXPECT_TRUE(idle.is_closed());
}

TEST(HttpServer, refuses_a_port_that_is_taken) {
  HttpServer server(kFreePort, {}, kEcho);
  const std::string address = server.address();
  const std::int64_t port = std::stoll(address.substr(address.rfind(':') + 1));
  try {
    HttpServer second({.host = "127.0.0.1", .port = port}, {}, kEcho);
    FAIL() << "both listen";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(error.what()).find(std::to_string(port)), std::string::npos);
  }
}

}  // namespace
}  // namespace moesaic::test
