#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic::test {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without the marks of chunks

  /// The data of its events.
  [[nodiscard]] std::vector<std::string> events() const;
};

/// One connection of a client that sends what it is told, also what is no HTTP.
class HttpClient {
 public:
  /// "127.0.0.1:8080". Throws std::runtime_error if nobody listens.
  explicit HttpClient(const std::string& address);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);
  /// The next answer, whole; `has_body` false: to HEAD. Throws std::runtime_error if the connection
  /// ends before, or nothing comes for two minutes.
  [[nodiscard]] HttpReply read(bool has_body = true);
  /// Reads until `text` has come.
  void read_until(std::string_view text);
  /// Waits for more; whether the server has closed the connection instead.
  [[nodiscard]] bool is_closed();

 private:
  /// More bytes, or false if the connection has ended.
  bool receive();
  std::string take(std::size_t count);
  std::string take_line();

  int socket_;
  std::string received_;
};

/// A request as it travels; `headers` are lines with their ends.
[[nodiscard]] std::string http_request(std::string_view method, std::string_view path,
                                       std::string_view body = {}, std::string_view headers = {});

/// One request on a connection of its own.
[[nodiscard]] HttpReply call(const std::string& address, std::string_view method,
                             std::string_view path, std::string_view body = {},
                             std::string_view headers = {});

}  // namespace moesaic::test
