#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moesaic {

/// The calls of a Communicator that concern a whole group and not rows. See communicator.h for what
/// each promises.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual void barrier() = 0;
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual void sum(std::span<std::int64_t> values) = 0;
  virtual void max(std::span<std::int64_t> values) = 0;
  virtual void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) = 0;
};

}  // namespace moesaic
