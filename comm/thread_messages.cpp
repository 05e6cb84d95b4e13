#include "comm/thread_messages.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {
namespace {

class ThreadMessages final : public Messages {
 public:
  ThreadMessages(ThreadPost& post, int rank) : post_(post), rank_(rank) {}

  void clear() override { awaited_.clear(); }
  void send(int peer, int tag, std::span<const std::byte> data) override {
    post_.send({rank_, peer, tag}, data);
  }
  std::size_t receive(int peer, int tag, std::span<std::byte> room) override {
    awaited_.push_back({{peer, rank_, tag}, room, -1});
    return awaited_.size() - 1;
  }
  bool progress() override {
    bool done = true;
    for (Awaited& letter : awaited_) {
      if (letter.bytes < 0) letter.bytes = post_.receive(letter.address, letter.room);
      done = done && letter.bytes >= 0;
    }
    return done;
  }
  [[nodiscard]] std::int64_t received_bytes(std::size_t number) const override {
    return awaited_[number].bytes;
  }
  [[nodiscard]] RankList unsent() const override { return {}; }

 private:
  struct Awaited {
    ThreadPost::Address address;
    std::span<std::byte> room;
    std::int64_t bytes;
  };

  ThreadPost& post_;
  int rank_;
  std::vector<Awaited> awaited_;
};

}  // namespace

void ThreadPost::send(const Address& address, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  letters_[address].emplace(data.begin(), data.end());
}

std::int64_t ThreadPost::receive(const Address& address, std::span<std::byte> room) {
  const std::lock_guard lock(mutex_);
  const auto found = letters_.find(address);
  if (found == letters_.end() || found->second.empty()) return -1;
  const std::vector<std::byte> letter = std::move(found->second.front());
  found->second.pop();
  require(letter.size() <= room.size(), ErrorKind::peer,
          "rank {}: a message of {} bytes from rank {}, {} were expected at most", address.to,
          letter.size(), address.from, room.size());
  std::copy(letter.begin(), letter.end(), room.begin());  // ranges::copy goes byte by byte
  return std::ssize(letter);
}

MessageMaker thread_message_maker(ThreadPost& post, int rank) {
  return [&post, rank] { return std::make_unique<ThreadMessages>(post, rank); };
}

}  // namespace moesaic
