#include "comm/segment_row_buffers.h"

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::int64_t kGranuleBytes = std::int64_t{2} << 20;  // one huge page

// A name: process and slot, file descriptor, inode, bytes.
RowBufferName to_name(const SharedSegment::Name& name, std::size_t slot) {
  return {static_cast<std::uint64_t>(slot) << 32 | static_cast<std::uint32_t>(name.pid),
          static_cast<std::uint32_t>(name.number), name.inode,
          static_cast<std::uint64_t>(name.bytes)};
}

std::size_t slot_of(const RowBufferName& name) {
  return static_cast<std::size_t>(name[0] >> 32);
}

SharedSegment::Name from_name(const RowBufferName& name) {
  return {SharedSegment::Home::anonymous,
          static_cast<std::int32_t>(static_cast<std::uint32_t>(name[0])),
          static_cast<std::int32_t>(name[1]), name[2], static_cast<std::int64_t>(name[3])};
}

/// A segment that is not there any more was that of a rank that has failed, or has been killed.
SharedSegment open_of_peer(const SharedSegment::Name& name) {
  try {
    return SharedSegment::open(name);
  } catch (const Error& error) {
    if (SharedSegment::exists(name)) throw;
    fail(ErrorKind::peer, "process {} of this node has gone: {}", name.pid, error.what());
  }
}

}  // namespace

std::byte* SegmentRowBuffers::reserve(std::size_t slot, std::int64_t bytes) {
  if (slot >= own_.size()) own_.resize(slot + 1);
  SharedSegment& own = own_[slot];
  if (own.name().bytes < bytes) {
    const std::int64_t with_reserve = bytes + bytes / 4;
    own = SharedSegment();
    own = SharedSegment::create(SharedSegment::Home::anonymous,
                                (with_reserve / kGranuleBytes + 1) * kGranuleBytes);
    take_huge_pages(own.bytes().first(static_cast<std::size_t>(bytes)));
  }
  return own.bytes().data();
}

RowBufferName SegmentRowBuffers::name(std::size_t slot) const {
  return to_name(own_[slot].name(), slot);
}

std::byte* SegmentRowBuffers::of_peer(int peer, const RowBufferName& name) {
  const std::size_t slot = slot_of(name);
  if (slot < own_.size() && this->name(slot) == name) return own_[slot].bytes().data();
  std::vector<Mapping>& mappings = of_peers_[static_cast<std::size_t>(peer)];
  if (slot >= mappings.size()) mappings.resize(slot + 1);
  Mapping& mapping = mappings[slot];
  if (mapping.name != name) {
    mapping = Mapping();
    mapping = {name, open_of_peer(from_name(name))};
  }
  return mapping.segment.bytes().data();
}

}  // namespace moesaic
