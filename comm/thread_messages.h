#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <queue>
#include <span>
#include <vector>

#include "comm/messages.h"

namespace moesaic {

/// Letters between threads that play ranks of different nodes.
class ThreadPost {
 public:
  struct Address {
    int from = 0;
    int to = 0;
    int tag = 0;
    auto operator<=>(const Address&) const = default;
  };

  void send(const Address& address, std::span<const std::byte> data);
  /// Moves the oldest letter to `room`; its length, or -1 if there is none. Throws Error{peer} if
  /// it is too long.
  std::int64_t receive(const Address& address, std::span<std::byte> room);

 private:
  std::mutex mutex_;
  std::map<Address, std::queue<std::vector<std::byte>>> letters_;
};

/// Messages of rank `rank` by this post, which must outlive them and their maker.
[[nodiscard]] MessageMaker thread_message_maker(ThreadPost& post, int rank);

}  // namespace moesaic
