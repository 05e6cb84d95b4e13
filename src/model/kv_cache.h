#pragma once

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "src/model/precision.h"

namespace moesaic {

struct ModelConfig;

/// Positions of one page of a cache: a block of attention's.
inline constexpr std::int64_t kPagePositions = kKeysPerBlock;

/// What the layers keep of one sequence, each in a layout of its own mixer's.
class KvCache {
 public:
  KvCache() = default;
  struct Extent {
    std::int64_t capacity = 0;  ///< positions there is room for
    /// Positions that are given at once, however they are cut into chunks.
    std::int64_t prompt_tokens = 0;
  };
  /// Throws Error{resource} if the memory cannot be had.
  KvCache(const ModelConfig& config, Precision precision, const Extent& extent);

  /// Bytes that a cache of `capacity` positions takes.
  [[nodiscard]] static std::int64_t bytes(const ModelConfig& config, Precision precision,
                                          std::int64_t capacity);

  /// Positions filled so far; the next token gets this position.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// A multiple of kPagePositions.
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  /// Counts `count` more positions as filled; all layers have seen them.
  void advance(std::int64_t count) noexcept { size_ += count; }
  /// Forgets all positions from `size` on.
  void truncate(std::int64_t size) noexcept { size_ = size; }
  /// The sequence length that rotary scalings which depend on it (dynamic, longrope) see at
  /// `position`: the whole prompt for its tokens, then one more a token, as transformers does in a
  /// generation.
  [[nodiscard]] std::int64_t rope_length(std::int64_t position) const noexcept {
    return std::max(prompt_tokens_, position + 1);
  }

  /// What a layer keeps of positions [page * kPagePositions, (page + 1) * kPagePositions):
  /// CacheNeeds::page_bytes, 64-byte aligned.
  [[nodiscard]] std::byte* page(std::int64_t layer, std::int64_t page) const {
    const Place& place = places_[static_cast<std::size_t>(layer)];
    return bytes_.data() + place.pages + page * place.page_bytes;
  }
  /// What a layer keeps however long the sequence is: CacheNeeds::state_bytes.
  [[nodiscard]] std::byte* state(std::int64_t layer) const {
    return bytes_.data() + places_[static_cast<std::size_t>(layer)].state;
  }

 private:
  struct Place {
    std::int64_t state;  // from the start of bytes_
    std::int64_t pages;  // the same
    std::int64_t page_bytes;
  };
  ByteBuffer bytes_;
  std::vector<Place> places_;  // [layers]
  std::int64_t capacity_ = 0;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace moesaic
