#include "src/serve/http_session.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;

/// For a client to hear why it is refused.
constexpr std::chrono::seconds kLeave(2);
constexpr std::size_t kDiscarded = 65536;  // bytes at a time
/// Of what comes before an answer is complete.
constexpr std::size_t kMostEarly = 65536;
/// Bytes of an answer that a client has the house's patience for.
constexpr std::size_t kPiece = 65536;

/// Status line and headers, or all of a message, as it travels.
template <typename Message>
std::string bytes_of(const Message& message) {
  std::ostringstream out;
  out << message;
  return std::move(out).str();
}

std::string text_of(beast::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

HttpSession::HttpSession(tcp::socket socket, HttpHouse& house)
    : house_(house), stream_(std::move(socket)), silence_(stream_.get_executor()) {
  ++house_.connections;
}

HttpSession::~HttpSession() {
  --house_.connections;
}

void HttpSession::read_header() {
  state_ = State::reading;
  if (house_.is_closing) return close();
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(house_.limits.header_bytes));
  parser_->body_limit(static_cast<std::uint64_t>(house_.limits.body_bytes));
  stream_.expires_after(house_.limits.patience);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](ErrorCode error, std::size_t) {
                            if (!self->has_failed(error)) self->read_body();
                          });
}

void HttpSession::read_body() {
  keeps_alive_ = parser_->get().keep_alive();
  is_chunked_ = parser_->get().version() >= 11;
  if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  stream_.expires_after(house_.limits.patience);
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](ErrorCode error, std::size_t) {
                     if (!self->has_failed(error)) self->handle();
                   });
}

bool HttpSession::has_failed(const ErrorCode& error) {
  if (!error) return false;
  if (error == http::error::body_limit) {
    refuse(413, fmt::format("the body has more than {} bytes", house_.limits.body_bytes));
  } else if (error == http::error::header_limit) {
    refuse(431, fmt::format("the headers have more than {} bytes", house_.limits.header_bytes));
  } else if (error.category() == make_error_code(http::error::end_of_stream).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message) {
    refuse(400, fmt::format("no HTTP request: {}", error.message()));
  } else {
    close();
  }
  return true;
}

void HttpSession::refuse(int status, std::string_view why) {
  keeps_alive_ = false;  // where the next request would begin is not known
  is_refused_ = true;
  is_head_ = has_events_ = is_complete_ = false;
  state_ = State::answering;
  send(house_.handler.refuse(status, why));
}

void HttpSession::handle() {
  auto message = parser_->release();
  const std::string target = text_of(message.target());
  is_head_ = message.method() == http::verb::head;
  const HttpRequest request{.method = is_head_ ? "GET" : text_of(message.method_string()),
                            .path = target.substr(0, target.find('?')),
                            .authorization = text_of(message[http::field::authorization]),
                            .body = std::move(message.body())};
  state_ = State::answering;
  is_complete_ = has_events_ = false;
  gone_ = nullptr;
  stream_.expires_never();
  try {
    house_.handler.answer(request, shared_from_this());
  } catch (...) {
    send(house_.handler.refuse(500, current_error().what()));
  }
  if (!is_complete_) watch();
}

void HttpSession::watch() {
  is_watching_ = true;
  stream_.socket().async_wait(tcp::socket::wait_read,
                              [self = shared_from_this()](const ErrorCode&) { self->look(); });
}

/// Something has come while an answer was awaited, or the watch has been called off.
void HttpSession::look() {
  is_watching_ = false;
  if (state_ == State::closed) return;
  if (is_complete_) return go_on();
  if (!read_early()) return lose();
  if (buffer_.size() < kMostEarly) watch();  // with more it is not looked whether it leaves
}

bool HttpSession::read_early() {
  const auto place = buffer_.prepare(kMostEarly);
  const ssize_t count =
      ::recv(stream_.socket().native_handle(), place.data(), place.size(), MSG_DONTWAIT);
  if (count > 0) buffer_.commit(static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

void HttpSession::on_gone(std::function<void()> call) {
  if (state_ == State::closed) return call();
  gone_ = std::move(call);
}

void HttpSession::send(HttpResponse response) {
  if (state_ != State::answering || is_complete_) return;
  if (has_events_) {
    send_event(response.body);
    return end_events();
  }
  http::response<http::string_body> message(static_cast<http::status>(response.status), 11);
  message.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) message.set(name, value);
  message.body() = std::move(response.body);
  message.prepare_payload();
  message.keep_alive(keeps_alive_ && !house_.is_closing);
  if (is_head_) message.body().clear();
  is_complete_ = true;
  write(bytes_of(message));
}

void HttpSession::begin_events() {
  if (state_ != State::answering || is_complete_) return;
  http::response<http::empty_body> message(http::status::ok, 11);
  message.set(http::field::content_type, "text/event-stream; charset=utf-8");
  message.set(http::field::cache_control, "no-cache");
  message.set("X-Accel-Buffering", "no");
  message.chunked(is_chunked_);
  keeps_alive_ = keeps_alive_ && is_chunked_;
  has_events_ = true;
  message.keep_alive(keeps_alive_);
  write(bytes_of(message.base()));
  keep_awake();
}

void HttpSession::keep_awake() {
  silence_.expires_after(house_.limits.silence);
  silence_.async_wait([self = shared_from_this()](const ErrorCode& error) {
    if (error || self->is_complete_ || self->state_ != State::answering) return;
    self->write(self->is_chunked_ ? "3\r\n:\n\n\r\n" : ":\n\n");
    self->keep_awake();
  });
}

void HttpSession::send_event(std::string_view data) {
  if (state_ != State::answering || is_complete_) return;
  const std::string event = fmt::format("data: {}\n\n", data);
  write(is_chunked_ ? fmt::format("{:x}\r\n{}\r\n", event.size(), event) : event);
  keep_awake();
}

void HttpSession::end_events() {
  if (state_ != State::answering || is_complete_) return;
  is_complete_ = true;
  silence_.cancel();
  write(is_chunked_ ? "0\r\n\r\n" : "");
}

void HttpSession::write(std::string bytes) {
  unsent_bytes_ += std::ssize(bytes);
  unsent_.push_back(std::move(bytes));
  if (!is_writing_) write_next();
}

void HttpSession::write_next() {
  is_writing_ = true;
  if (state_ == State::answering) stream_.expires_after(house_.limits.patience);
  const std::string& first = unsent_.front();
  const std::size_t count = std::min(first.size() - sent_, kPiece);
  boost::asio::async_write(stream_, boost::asio::buffer(first.data() + sent_, count),
                           [self = shared_from_this()](const ErrorCode& error, std::size_t sent) {
                             self->end_write(error, sent);
                           });
}

void HttpSession::end_write(const ErrorCode& error, std::size_t sent) {
  is_writing_ = false;
  if (state_ == State::closed) return;
  unsent_bytes_ -= static_cast<std::int64_t>(sent);
  sent_ += sent;
  const bool lags = has_events_ && unsent_bytes_ > house_.limits.unsent_bytes;
  if (error || lags) return lose();
  if (sent_ == unsent_.front().size()) {
    unsent_.pop_front();
    sent_ = 0;
  }
  if (!unsent_.empty()) return write_next();
  if (state_ == State::answering) stream_.expires_never();
  if (is_complete_) go_on();
}

/// The answer is there; when all of it has been sent, and nobody watches, the next request may
/// come.
void HttpSession::go_on() {
  if (state_ != State::answering || is_writing_ || !unsent_.empty()) return;
  gone_ = nullptr;
  if (is_refused_) return leave();
  if (!keeps_alive_ || house_.is_closing) return close();
  if (!is_watching_) return read_header();
  ErrorCode ignored;
  stream_.socket().cancel(ignored);  // look() comes back here
}

void HttpSession::leave() {
  if (state_ != State::leaving) {
    state_ = State::leaving;
    ErrorCode ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLeave);
  }
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kDiscarded),
                          [self = shared_from_this()](const ErrorCode& error, std::size_t) {
                            error ? self->close() : self->leave();
                          });
}

void HttpSession::close_soon() {
  if (state_ == State::reading) close();
}

void HttpSession::lose() {
  const bool was_awaited = state_ == State::answering && !is_complete_;
  const std::function<void()> gone = std::exchange(gone_, nullptr);
  close();
  if (was_awaited && gone) gone();
}

void HttpSession::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  gone_ = nullptr;
  silence_.cancel();
  ErrorCode ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.close();
}

}  // namespace moesaic
