#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/awaited.h"

namespace moesaic {

/// Messages of one exchange between ranks of a group that may be on different machines. Messages
/// with the same sender, receiver and tag are received in the order in which they were sent.
class Messages {
 public:
  virtual ~Messages() = default;
  /// Forgets all; nothing may be under way.
  virtual void clear() = 0;
  /// `data` stays until all is done.
  virtual void send(int peer, int tag, std::span<const std::byte> data) = 0;
  /// Receives a message of at most `room`; returns its number among those that are received.
  virtual std::size_t receive(int peer, int tag, std::span<std::byte> room) = 0;
  /// Lets messages move; returns whether all is done. Throws Error{peer} if one is too long.
  virtual bool progress() = 0;
  /// The length of a message, or -1 as long as it has not come.
  [[nodiscard]] virtual std::int64_t received_bytes(std::size_t number) const = 0;
  /// Who has not received what was sent, as far as that is known.
  [[nodiscard]] virtual RankList unsent() const = 0;
};

/// Makes the messages of an exchange; their way must outlive them.
using MessageMaker = std::function<std::unique_ptr<Messages>()>;

}  // namespace moesaic
