#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "comm/communicator.h"

namespace moesaic {

/// Ordinary memory, which may have huge pages: of ranks that are threads, or one that is alone on
/// its node.
class OwnMemory final : public SharedMemory {
 public:
  explicit OwnMemory(std::int64_t bytes) : memory_(static_cast<std::size_t>(bytes)) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return memory_.span(); }

 private:
  ByteBuffer memory_;
};

}  // namespace moesaic
