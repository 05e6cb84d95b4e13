#include "comm/segment_row_buffers.h"

namespace moesaic {
namespace {

constexpr std::int64_t kGranuleBytes = std::int64_t{2} << 20;  // one huge page

RowBufferName to_name(const SharedSegment::Name& name) {
  return {static_cast<std::uint32_t>(name.pid), static_cast<std::uint32_t>(name.number), name.inode,
          static_cast<std::uint64_t>(name.bytes)};
}

SharedSegment::Name from_name(const RowBufferName& name) {
  return {SharedSegment::Home::anonymous, static_cast<std::int32_t>(name[0]),
          static_cast<std::int32_t>(name[1]), name[2], static_cast<std::int64_t>(name[3])};
}

}  // namespace

std::byte* SegmentRowBuffers::reserve(std::size_t parity, std::int64_t bytes) {
  SharedSegment& own = own_[parity];
  if (own.name().bytes < bytes) {
    const std::int64_t with_reserve = bytes + bytes / 4;
    own = SharedSegment();
    own = SharedSegment::create(SharedSegment::Home::anonymous,
                                (with_reserve / kGranuleBytes + 1) * kGranuleBytes);
  }
  return own.bytes().data();
}

RowBufferName SegmentRowBuffers::name(std::size_t parity) const {
  return to_name(own_[parity].name());
}

std::byte* SegmentRowBuffers::of_peer(int peer, std::size_t parity, const RowBufferName& name) {
  Mapping& mapping = of_peers_[static_cast<std::size_t>(peer)][parity];
  if (mapping.name != name) {
    mapping = Mapping();
    mapping = {name, SharedSegment::open(from_name(name))};
  }
  return mapping.segment.bytes().data();
}

}  // namespace moesaic
