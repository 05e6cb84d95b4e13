#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moesaic {

/// What clients may ask of a server, so that none of them takes it away from the others.
struct HttpLimits {
  std::int64_t body_bytes = std::int64_t{16} << 20U;    ///< of a request: else status 413
  std::int64_t header_bytes = std::int64_t{16} << 10U;  ///< of all its headers: else status 431
  std::int64_t connections = 256;                       ///< at a time: the next are closed
  /// Of an answer that a client takes, but slowly: it is gone then.
  std::int64_t unsent_bytes = std::int64_t{64} << 20U;
  /// For a request to come whole, and for a client to take some of an answer.
  std::chrono::milliseconds patience{60'000};
  /// Events that long apart have a comment between them, so that nobody on the way gives up.
  std::chrono::milliseconds silence{15'000};
};

struct HttpRequest {
  std::string method;  // "GET", also for HEAD
  std::string path;    // "/v1/models": without what follows a '?'
  std::string authorization;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers{};
};

/// The answer to one request: a whole one, or events (text/event-stream) as they come. May be given
/// at any time, on the server's thread alone, and after its end, where it goes nowhere; must not
/// outlive the server.
class HttpAnswer {
 public:
  virtual ~HttpAnswer() = default;

  /// Of a stream that has begun, its body is the last event.
  virtual void send(HttpResponse response) = 0;
  virtual void begin_events() = 0;
  /// `data` without ends of lines.
  virtual void send_event(std::string_view data) = 0;
  virtual void end_events() = 0;
  /// Calls `call` once the client has gone away before the answer is complete: at once, if it has.
  virtual void on_gone(std::function<void()> call) = 0;
};

/// What a server does with requests, on its thread.
struct HttpHandler {
  /// What it throws is answered by refuse(500, ...).
  std::function<void(const HttpRequest&, const std::shared_ptr<HttpAnswer>&)> answer;
  /// The answer to what is no request, or too large.
  std::function<HttpResponse(int status, std::string_view why)> refuse;
};

/// An HTTP/1.1 server on a thread of its own, and one for work that takes longer.
class HttpServer {
 public:
  struct Place {
    std::string host;       // a name or an address of this machine
    std::int64_t port = 0;  // 0: one that is free
  };
  /// Listens from now on. Throws Error{resource} if it cannot.
  HttpServer(const Place& place, const HttpLimits& limits, HttpHandler handler);
  /// Lets no one in any more, and waits a moment for clients to take the answers that are there.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// "127.0.0.1:8080", "[::1]:8080".
  [[nodiscard]] const std::string& address() const noexcept;
  // Of any thread:
  /// Calls `work` on the server's thread, soon.
  void post(std::function<void()> work);
  /// The same on another one, so that nobody waits for it but those who have such work too. It may
  /// not throw.
  void post_aside(std::function<void()> work);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moesaic
