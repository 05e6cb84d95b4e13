#include "tests/serve/http_client.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

namespace moesaic::test {

std::vector<std::string> HttpReply::events() const {
  constexpr std::string_view kData = "data: ";
  std::vector<std::string> all;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find("\n\n", at), body.size());
    const std::string event = body.substr(at, end - at);
    if (event.starts_with(kData)) all.push_back(event.substr(kData.size()));
    at = end + 2;
  }
  return all;
}

HttpClient::HttpClient(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &place.sin_addr);
  const timeval patience{.tv_sec = 120, .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0) {
    ::close(socket_);
    throw std::runtime_error("nobody listens on " + address);
  }
}

HttpClient::~HttpClient() {
  ::close(socket_);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;  // what the server thinks of it can be read
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

bool HttpClient::receive() {
  std::array<char, 4096> some{};
  const ssize_t count = ::recv(socket_, some.data(), some.size(), 0);
  if (count > 0) received_.append(some.data(), static_cast<std::size_t>(count));
  return count > 0;
}

std::string HttpClient::take(std::size_t count) {
  while (received_.size() < count) {
    if (!receive()) throw std::runtime_error("the answer has ended early: " + received_);
  }
  std::string taken = received_.substr(0, count);
  received_.erase(0, count);
  return taken;
}

std::string HttpClient::take_line() {
  std::size_t end = 0;
  while ((end = received_.find("\r\n")) == std::string::npos) {
    if (!receive()) throw std::runtime_error("a line has ended early: " + received_);
  }
  const std::string line = take(end + 2);
  return line.substr(0, end);
}

HttpReply HttpClient::read(bool has_body) {
  HttpReply reply;
  reply.status = std::stoi(take_line().substr(std::string_view("HTTP/1.1 ").size()));
  for (std::string line = take_line(); !line.empty(); line = take_line()) {
    const std::size_t colon = line.find(": ");
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    reply.headers[name] = line.substr(colon + 2);
  }
  if (!has_body || reply.status == 100) return reply;
  if (reply.headers.contains("transfer-encoding")) {
    for (std::size_t size = 1; size > 0;) {
      size = std::stoul(take_line(), nullptr, 16);
      reply.body += take(size);
      (void)take_line();
    }
  } else if (reply.headers.contains("content-length")) {
    reply.body = take(std::stoul(reply.headers["content-length"]));
  } else {
    while (receive()) continue;
    reply.body = take(received_.size());
  }
  return reply;
}

void HttpClient::read_until(std::string_view text) {
  while (received_.find(text) == std::string::npos) {
    if (!receive()) throw std::runtime_error("the connection has ended: " + received_);
  }
}

bool HttpClient::is_closed() {
  return !receive();
}

std::string http_request(std::string_view method, std::string_view path, std::string_view body,
                         std::string_view headers) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: test\r\n{}Content-Length: {}\r\n\r\n{}", method, path,
                     headers, body.size(), body);
}

HttpReply call(const std::string& address, std::string_view method, std::string_view path,
               std::string_view body, std::string_view headers) {
  HttpClient client(address);
  client.send(http_request(method, path, body, headers));
  return client.read(method != "HEAD");
}

}  // namespace moesaic::test
