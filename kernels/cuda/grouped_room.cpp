#include "kernels/cuda/grouped_room.h"

#include <algorithm>

#include "kernels/format.h"

namespace moesaic {
namespace {

/// More than any operand has to begin at.
constexpr std::int64_t kGroupedAlignment = 512;

/// Parts of some memory, one after the other.
class PartsOf {
 public:
  explicit PartsOf(CudaAddress begin) : next_(begin) {}

  template <typename T>
  void take(T*& part, std::int64_t count) {
    part = reinterpret_cast<T*>(next_);
    next_ += static_cast<CudaAddress>(
        round_up(count * static_cast<std::int64_t>(sizeof(T)), kGroupedAlignment));
  }
  void take_bytes(void*& part, std::int64_t bytes) {
    part = reinterpret_cast<void*>(next_);
    next_ += static_cast<CudaAddress>(round_up(bytes, kGroupedAlignment));
  }
  void take(cuda::GroupLists& lists, std::int64_t groups) {
    take(lists.shapes, groups);
    take(lists.a, groups);
    take(lists.a_scales, groups);
    take(lists.b, groups);
    take(lists.b_scales, groups);
    take(lists.d, groups);
  }
  [[nodiscard]] CudaAddress next() const noexcept { return next_; }

 private:
  CudaAddress next_;
};

}  // namespace

std::int64_t GroupedRoom::groups() const noexcept {
  return std::min(rows, mlps + rows / cuda::kMostGroupRows);
}

std::int64_t GroupedRoom::bytes() const noexcept {
  return static_cast<std::int64_t>(GroupedMemory(*this, 0).end);
}

GroupedMemory::GroupedMemory(const GroupedRoom& room, CudaAddress memory) noexcept {
  const std::int64_t depth = std::max(room.hidden, room.width);
  const std::int64_t groups = room.groups();
  const std::int64_t padded_rows = room.rows + groups * (cuda::kScaleBlockRows - 1);
  PartsOf parts(memory);
  parts.take_bytes(workspace, kGroupedWorkspaceBytes);
  parts.take(rows.codes, room.rows * depth / 2);
  parts.take(rows.scales, padded_rows * depth / 16);
  parts.take(rows.row_scales, room.rows);
  parts.take(places, room.rows);
  parts.take(sums, room.rows * 2 * room.width);
  parts.take(gate_up, 2 * groups);
  parts.take(down, groups);
  end = parts.next();
}

}  // namespace moesaic
