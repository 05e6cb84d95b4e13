#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/row_buffers.h"
#include "comm/shared_segment.h"

namespace moesaic {

/// In shared segments: a rank replaces one when it needs a larger one, and its peers map the new
/// one when they next read from it.
class SegmentRowBuffers final : public RowBuffers {
 public:
  explicit SegmentRowBuffers(int num_ranks) : of_peers_(static_cast<std::size_t>(num_ranks)) {}

  std::byte* reserve(std::size_t slot, std::int64_t bytes) override;
  [[nodiscard]] RowBufferName name(std::size_t slot) const override;
  std::byte* of_peer(int peer, const RowBufferName& name) override;
  [[nodiscard]] bool go_with_rank() const noexcept override { return true; }

 private:
  struct Mapping {
    RowBufferName name{};
    SharedSegment segment;
  };
  std::vector<SharedSegment> own_;              // [slots]
  std::vector<std::vector<Mapping>> of_peers_;  // [ranks of the node][their slots]
};

}  // namespace moesaic
