#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/buffer.h"

namespace moesaic {

/// Where a rank's rows lie, as its peers can find it.
using RowBufferName = std::array<std::uint64_t, 4>;

/// Memory in which ranks of a node read each other's rows: those that a rank sends, and messages
/// that it receives for all of them.
class RowBuffers {
 public:
  virtual ~RowBuffers() = default;
  /// A buffer of no bytes; its number.
  [[nodiscard]] std::size_t new_slot() { return num_slots_++; }
  /// This rank's buffer number `slot`, of at least `bytes`, aligned to 64. Its contents may be
  /// lost. Throws Error{resource} if it cannot grow.
  virtual std::byte* reserve(std::size_t slot, std::int64_t bytes) = 0;
  /// What peers must know to find that buffer.
  [[nodiscard]] virtual RowBufferName name(std::size_t slot) const = 0;
  /// A peer's buffer, or an own one, as this rank sees it. Throws Error{peer} if the peer is gone.
  virtual std::byte* of_peer(int peer, const RowBufferName& name) = 0;
  /// Whether a peer can find them only as long as this rank has them; what it has found stays.
  [[nodiscard]] virtual bool go_with_rank() const noexcept = 0;

 private:
  std::size_t num_slots_ = 0;
};

/// In this process's memory, which its threads see as well.
class ProcessRowBuffers final : public RowBuffers {
 public:
  using Memory = std::deque<ByteBuffer>;
  /// `memory` must outlive this and all readers.
  explicit ProcessRowBuffers(Memory& memory) : memory_(memory) {}

  std::byte* reserve(std::size_t slot, std::int64_t bytes) override;
  [[nodiscard]] RowBufferName name(std::size_t slot) const override;
  std::byte* of_peer(int peer, const RowBufferName& name) override;
  [[nodiscard]] bool go_with_rank() const noexcept override { return false; }

 private:
  Memory& memory_;
};

}  // namespace moesaic
