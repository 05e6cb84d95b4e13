#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/generate/prompt_logprobs.h"
#include "src/generate/request_feed.h"

namespace moesaic {

/// What clients call a request of theirs; no two have the same.
using Ticket = std::int64_t;

/// Where requests wait between the threads of those who ask and the one that runs the engine, and
/// what they get is handed out.
class RequestDesk {
 public:
  struct Order {
    Ticket ticket = 0;
    Request request;
  };
  /// Called on the engine's thread. A request that was withdrawn may still be told of.
  struct Listener {
    std::function<void(Ticket, const NewToken&)> on_token;
    std::function<void(Ticket, const PromptLogprob&)> on_prompt_logprob;
    std::function<void(Ticket, Finished&&)> on_finished;  // damaged ones too
  };

  explicit RequestDesk(std::int64_t most_waiting) : most_waiting_(most_waiting) {}

  // Of any thread.
  /// All of the orders, or none if too many would wait.
  [[nodiscard]] bool add(std::vector<Order> orders);
  /// The request is not wanted any more.
  void withdraw(Ticket ticket);
  [[nodiscard]] std::int64_t waiting() const;
  [[nodiscard]] std::int64_t most_waiting() const noexcept { return most_waiting_; }

  // Of the engine's thread.
  /// Requests without end, until a rank is asked to stop. The desk must outlive it.
  [[nodiscard]] RequestFeed feed(Listener listener);
  /// What a step brought is told after it, prompts before ends.
  void end_step(std::span<const PromptLogprob> logprobs);

 private:
  [[nodiscard]] std::optional<Request> next();
  [[nodiscard]] std::vector<RequestId> unwanted();
  void wait();

  const std::int64_t most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable arrival_;
  std::deque<Order> orders_;
  std::vector<Ticket> withdrawn_;  // of requests that do not wait
  // Of the engine's thread:
  Listener listener_;
  std::vector<Finished> ended_;  // in this step
  RequestId given_ = 0;          // how many the engine has got
  std::unordered_map<RequestId, Ticket> tickets_;
  std::unordered_map<Ticket, RequestId> ids_;
};

}  // namespace moesaic
