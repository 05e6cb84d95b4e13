#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace moesaic {

/// What a server has done since it began, as Prometheus reads it.
class ServeMetrics {
 public:
  void add_prompt(std::int64_t tokens) { prompt_tokens_ += tokens; }
  void add_token() { ++generated_tokens_; }
  void add_first_token(double seconds) { first_token_.add(seconds); }
  void add_finished(std::string_view reason, double seconds);
  /// A text that nobody wants any more.
  void add_abort() { count("abort"); }
  void add_refused() { ++refused_; }

  struct Now {
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    double uptime_seconds = 0;
  };
  /// The text of GET /metrics: version 0.0.4 of the exposition format.
  [[nodiscard]] std::string text(const Now& now) const;

 private:
  struct Duration {
    double sum = 0;
    std::int64_t count = 0;
    void add(double seconds) {
      sum += seconds;
      ++count;
    }
  };
  void count(std::string_view reason);

  std::int64_t prompt_tokens_ = 0;
  std::int64_t generated_tokens_ = 0;
  std::int64_t refused_ = 0;
  std::map<std::string, std::int64_t, std::less<>> finished_;  // by reason
  Duration first_token_;
  Duration request_;
};

}  // namespace moesaic
