#include "comm/row_pool.h"

#include <algorithm>

#include "comm/row_transport.h"

namespace moesaic {
namespace {

/// Readers that are done are forgotten.
bool is_free(RowBlock& block) {
  std::erase_if(block.readers, [](const RowPart* part) { return part->is_free(); });
  return block.readers.empty();
}

}  // namespace

class RowPool::Memory final : public RowMemory {
 public:
  explicit Memory(RowPool& pool) : pool_(pool) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() override { pool_.spare_.insert(pool_.spare_.end(), blocks_.begin(), blocks_.end()); }

  std::byte* renew(std::int64_t bytes) override {
    auto free = std::ranges::find_if(blocks_, [](RowBlock* block) { return is_free(*block); });
    if (free == blocks_.end()) free = blocks_.insert(free, pool_.take());
    RowBlock& block = **free;
    block.bytes = 0;  // in case there is no memory
    block.data = pool_.buffers_->reserve(block.slot, bytes);
    block.bytes = bytes;
    return block.data;
  }

 private:
  RowPool& pool_;
  std::vector<RowBlock*> blocks_;
};

std::unique_ptr<RowMemory> RowPool::make_memory() {
  return std::make_unique<Memory>(*this);
}

RowBlock* RowPool::find(const std::byte* at) noexcept {
  const auto found = std::ranges::find_if(
      blocks_, [at](const std::unique_ptr<RowBlock>& block) { return block->holds(at); });
  return found == blocks_.end() ? nullptr : found->get();
}

RowBlock* RowPool::take() {
  const auto spare = std::ranges::find_if(spare_, [](RowBlock* block) { return is_free(*block); });
  if (spare == spare_.end()) {
    blocks_.push_back(std::make_unique<RowBlock>(RowBlock{.slot = buffers_->new_slot()}));
    return blocks_.back().get();
  }
  RowBlock* const block = *spare;
  spare_.erase(spare);
  return block;
}

}  // namespace moesaic
