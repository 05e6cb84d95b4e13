#include "src/serve/request_desk.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace moesaic {
namespace {

/// A small part of any --timeout: the other ranks hear of rank 0 so often.
constexpr std::chrono::milliseconds kLongestWait(300);

}  // namespace

bool RequestDesk::add(std::vector<Order> orders) {
  {
    const std::lock_guard lock(mutex_);
    if (std::ssize(orders_) + std::ssize(orders) > most_waiting_) return false;
    std::ranges::move(orders, std::back_inserter(orders_));
  }
  arrival_.notify_one();
  return true;
}

void RequestDesk::withdraw(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (std::erase_if(orders_, [&](const Order& order) { return order.ticket == ticket; }) == 0) {
    withdrawn_.push_back(ticket);
  }
}

std::int64_t RequestDesk::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(orders_);
}

std::optional<Request> RequestDesk::next() {
  const std::lock_guard lock(mutex_);
  if (orders_.empty()) return std::nullopt;
  Order order = std::move(orders_.front());
  orders_.pop_front();
  ids_.emplace(order.ticket, given_);
  tickets_.emplace(given_++, order.ticket);
  return std::move(order.request);
}

void RequestDesk::wait() {
  std::unique_lock lock(mutex_);
  arrival_.wait_for(lock, kLongestWait, [&] { return !orders_.empty(); });
}

std::vector<RequestId> RequestDesk::unwanted() {
  std::vector<Ticket> tickets;
  {
    const std::lock_guard lock(mutex_);
    tickets.swap(withdrawn_);
  }
  std::vector<RequestId> result;
  for (const Ticket ticket : tickets) {
    if (const auto found = ids_.find(ticket); found != ids_.end()) result.push_back(found->second);
  }
  return result;
}

RequestFeed RequestDesk::feed(Listener listener) {
  listener_ = std::move(listener);

  return {
      .next = [this] { return next(); },
      .may_come =
          [this](bool idle) {
            if (idle) wait();
            return true;
          },
      .unwanted = [this] { return unwanted(); },
      .on_token =
          [this](const NewToken& token) { listener_.on_token(tickets_.at(token.request), token); },
      .on_finished = [this](Finished&& finished) { ended_.push_back(std::move(finished)); },
      .on_damaged = [this](const Finished& finished) { ended_.push_back(finished); }};
}

void RequestDesk::end_step(std::span<const PromptLogprob> logprobs) {
  for (const PromptLogprob& logprob : logprobs) {
    const auto found = tickets_.find(logprob.request);
    if (found != tickets_.end()) listener_.on_prompt_logprob(found->second, logprob);
  }
  for (Finished& finished : ended_) {
    const Ticket ticket = tickets_.extract(finished.request).mapped();
    ids_.erase(ticket);
    listener_.on_finished(ticket, std::move(finished));
  }
  ended_.clear();
}

}  // namespace moesaic
