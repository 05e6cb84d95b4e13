#include "comm/row_buffers.h"

namespace moesaic {

std::byte* ProcessRowBuffers::reserve(std::size_t slot, std::int64_t bytes) {
  if (slot >= memory_.size()) memory_.resize(slot + 1);
  ByteBuffer& buffer = memory_[slot];
  const auto needed = static_cast<std::size_t>(bytes);
  if (buffer.size() < needed) {
    buffer = ByteBuffer();  // first: both together may be too much
    buffer = ByteBuffer::with_slack(needed);
  }
  return buffer.data();
}

RowBufferName ProcessRowBuffers::name(std::size_t slot) const {
  return {reinterpret_cast<std::uintptr_t>(memory_[slot].data())};
}

std::byte* ProcessRowBuffers::of_peer(int /*peer*/, const RowBufferName& name) {
  return reinterpret_cast<std::byte*>(name[0]);
}

}  // namespace moesaic
