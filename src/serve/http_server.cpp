#include "src/serve/http_server.h"

#include <fmt/core.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "src/serve/http_session.h"

namespace moesaic {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// For answers that are on their way when a server ends.
constexpr std::chrono::seconds kLeave(2);
/// Before the next connection, where the system has no room for one.
constexpr std::chrono::milliseconds kNoRoom(100);

std::string address_text(const tcp::endpoint& place) {
  const std::string host = place.address().to_string();
  return fmt::format(fmt::runtime(place.address().is_v6() ? "[{}]:{}" : "{}:{}"), host,
                     place.port());
}

tcp::acceptor listen(asio::io_context& context, const HttpServer::Place& place) {
  try {
    tcp::resolver resolver(context);
    const auto found =
        resolver.resolve(place.host, std::to_string(place.port), tcp::resolver::passive);
    const tcp::endpoint endpoint = *found.begin();
    return {context, endpoint, true};
  } catch (const boost::system::system_error& error) {
    fail(ErrorKind::resource, "cannot listen on {} port {}: {}", place.host, place.port,
         error.code().message());
  }
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const Place& place, const HttpLimits& limits, HttpHandler handler)
      : house_{.limits = limits, .handler = std::move(handler)},
        acceptor_(listen(context_, place)),
        address_(address_text(acceptor_.local_endpoint())),
        pause_(context_),
        leave_(context_) {
    accept();
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    aside_.join();
    asio::post(context_, [this] { close(); });
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  void post(std::function<void()> work) { asio::post(context_, std::move(work)); }
  void post_aside(std::function<void()> work) { asio::post(aside_, std::move(work)); }

 private:
  /// What throws here, as for want of memory, ends one connection, which nobody holds any more.
  void run() {
    for (bool is_done = false; !is_done;) {
      try {
        context_.run();
        is_done = true;
      } catch (const std::exception&) {
        continue;
      }
    }
  }

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (house_.is_closing) return;
      if (error) {
        pause_.expires_after(kNoRoom);
        pause_.async_wait([this](boost::system::error_code) {
          if (!house_.is_closing) accept();
        });
        return;
      }
      if (house_.connections < house_.limits.connections) let_in(std::move(socket));
      accept();
    });
  }

  void let_in(tcp::socket socket) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto session = std::make_shared<HttpSession>(std::move(socket), house_);
    std::erase_if(sessions_, [](const std::weak_ptr<HttpSession>& one) { return one.expired(); });
    sessions_.push_back(session);
    session->start();
  }

  /// The thread ends with the last connection, or when time is up.
  void close() {
    house_.is_closing = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    for (const std::weak_ptr<HttpSession>& one : sessions_) {
      if (const auto session = one.lock()) session->close_soon();
    }
    leave_.expires_after(kLeave);
    leave_.async_wait([this](boost::system::error_code) { context_.stop(); });
    look_for_the_last();
  }

  void look_for_the_last() {
    if (house_.connections == 0) return context_.stop();
    pause_.expires_after(std::chrono::milliseconds(10));
    pause_.async_wait([this](boost::system::error_code) { look_for_the_last(); });
  }

  HttpHouse house_;  // before the context, whose handlers hold sessions
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  std::string address_;
  asio::steady_timer pause_;
  asio::steady_timer leave_;
  std::vector<std::weak_ptr<HttpSession>> sessions_;
  std::thread thread_;
  asio::thread_pool aside_{1};
};

HttpServer::HttpServer(const Place& place, const HttpLimits& limits, HttpHandler handler)
    : impl_(std::make_unique<Impl>(place, limits, std::move(handler))) {}

HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const noexcept {
  return impl_->address();
}

void HttpServer::post(std::function<void()> work) {
  impl_->post(std::move(work));
}

void HttpServer::post_aside(std::function<void()> work) {
  impl_->post_aside(std::move(work));
}

}  // namespace moesaic
