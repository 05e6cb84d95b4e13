#include "comm/row_arena.h"

#include <algorithm>

#include "base/rounding.h"

namespace moesaic {
namespace {

constexpr std::int64_t kSmallestBlock = std::int64_t{1} << 20;
constexpr std::int64_t kAlignment = 64;

}  // namespace

RowArena::Piece RowArena::allocate(std::int64_t bytes) {
  const std::int64_t size = round_up(bytes, kAlignment);
  auto block =
      std::ranges::find_if(blocks_, [&](const Block& b) { return b.size - b.used >= size; });
  if (block == blocks_.end()) {
    const std::int64_t last = blocks_.empty() ? 0 : blocks_.back().size;
    const std::int64_t its_size = std::max({size, 2 * last, kSmallestBlock});
    const std::size_t slot = buffers_.new_slot();
    blocks_.push_back({slot, buffers_.reserve(slot, its_size), its_size, 0});
    block = blocks_.end() - 1;
  }
  const std::int64_t offset = block->used;
  block->used += size;
  return {block->data + offset, {buffers_.name(block->slot), offset}};
}

}  // namespace moesaic
