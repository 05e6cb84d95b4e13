#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "src/model/kv_pool.h"

namespace moesaic {

/// What the layers remember of one sequence on this rank, in pages of a KvPool. Movable; whatever
/// it has goes back to the pool at the end.
class Sequence {
 public:
  Sequence() = default;  // of no pool: empty, and stays so
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  ~Sequence() { clear(); }

  /// Positions filled so far; the next token gets this position.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::int64_t prompt_length() const noexcept { return prompt_length_; }
  /// The sequence length that rotary scalings which depend on it (dynamic, longrope) see at
  /// `position`: the whole prompt for its tokens, then one more a token, as transformers does in a
  /// generation.
  [[nodiscard]] std::int64_t rope_length(std::int64_t position) const noexcept {
    return std::max(prompt_length_, position + 1);
  }

  /// Makes room for positions [size(), positions): after it a forward pass may write them. Pages
  /// that others read are copied. Throws Error{resource} if the pool is at its limit; what there is
  /// stays.
  void ensure(std::int64_t positions);
  /// Pages of the pool that ensure() would take, shared ones that it would copy among them.
  [[nodiscard]] std::int64_t pages_needed(std::int64_t positions) const;
  /// Counts `count` more positions as filled: all layers have written them.
  void advance(std::int64_t count) noexcept { size_ += count; }
  /// Forgets all positions from `size` on. Layers with a state cannot go back: only 0 or size()
  /// then, else Error{usage}.
  void truncate(std::int64_t size);

  /// Starts this empty sequence with the first `positions` of `other`, without computing them: both
  /// read the same pages. Returns how many it has now: 0 where the two cannot share, since the
  /// prompts' lengths differ and matter, or since layers keep a state and `positions` is not all of
  /// `other`.
  std::int64_t share_prefix(const Sequence& other, std::int64_t positions);

  /// Bytes of its pages and states, shared ones too.
  [[nodiscard]] std::int64_t bytes() const noexcept;

  /// What a layer keeps of positions [page * kPagePositions, (page + 1) * kPagePositions):
  /// CacheNeeds::page_bytes, 64-byte aligned.
  [[nodiscard]] std::byte* page(std::int64_t layer, std::int64_t page) const {
    return page_data_[static_cast<std::size_t>(page)] +
           pool_->places_[static_cast<std::size_t>(layer)].page;
  }
  /// What a layer keeps however long the sequence is: CacheNeeds::state_bytes, zero while size()
  /// is.
  [[nodiscard]] std::byte* state(std::int64_t layer) const {
    return states_.data() + pool_->places_[static_cast<std::size_t>(layer)].state;
  }
  /// Makes it zero again, for a layer that computes all positions once more.
  void clear_state(std::int64_t layer) const;

 private:
  friend class KvPool;
  Sequence(KvPool& pool, std::int64_t prompt_length);
  void clear() noexcept;
  void drop_pages_from(std::size_t first) noexcept;
  void own_page(std::size_t index);

  KvPool* pool_ = nullptr;
  std::int64_t prompt_length_ = 0;
  std::int64_t size_ = 0;
  std::vector<KvPool::PageId> pages_;
  std::vector<std::byte*> page_data_;  // the same pages
  ByteBuffer states_;
};

}  // namespace moesaic
