#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/serve/http_server.h"

namespace moesaic {

/// What the connections of a server share. Of its thread alone.
struct HttpHouse {
  HttpLimits limits;
  HttpHandler handler;
  std::int64_t connections = 0;
  bool is_closing = false;  // connections end with the answer that is under way
};

/// One connection, and the answer to the request that it is at: requests come one after the other.
/// Lives as long as something of it is under way or somebody holds the answer.
class HttpSession : public HttpAnswer, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(boost::asio::ip::tcp::socket socket, HttpHouse& house);
  ~HttpSession() override;
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  /// Waits for the first request.
  void start() { read_header(); }
  /// No request will follow; one that has not come whole is not waited for.
  void close_soon();

  void send(HttpResponse response) override;
  void begin_events() override;
  void send_event(std::string_view data) override;
  void end_events() override;
  void on_gone(std::function<void()> call) override;

 private:
  using ErrorCode = boost::beast::error_code;
  enum class State { reading, answering, leaving, closed };

  void read_header();
  void read_body();
  void handle();
  /// Whether reading has failed: then that is answered, where there is something to say.
  [[nodiscard]] bool has_failed(const ErrorCode& error);
  void refuse(int status, std::string_view why);
  /// Looks, while an answer is awaited, whether the client is still there.
  void watch();
  void look();
  /// Takes in what has come early of the next request; whether the client is still there.
  [[nodiscard]] bool read_early();
  void keep_awake();
  void write(std::string bytes);
  void write_next();
  void end_write(const ErrorCode& error, std::size_t sent);
  void go_on();
  /// Reads what a client that was refused still sends: it could not read the answer otherwise.
  void leave();
  /// The client has gone, or is given up.
  void lose();
  void close();

  HttpHouse& house_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer silence_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  State state_ = State::reading;
  bool keeps_alive_ = false;
  bool is_head_ = false;      // the headers of an answer are wanted alone
  bool has_events_ = false;   // of the answer: they have begun
  bool is_chunked_ = false;   // the events that are sent
  bool is_complete_ = false;  // the answer: all of it has been given
  bool is_refused_ = false;   // what was read is no request
  bool is_watching_ = false;
  bool is_writing_ = false;
  std::deque<std::string> unsent_;
  std::size_t sent_ = 0;  // bytes of the first of these
  std::int64_t unsent_bytes_ = 0;
  std::function<void()> gone_;
};

}  // namespace moesaic
