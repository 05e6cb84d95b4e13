#pragma once

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "src/checkpoint/model_config.h"
#include "src/model/precision.h"

namespace moesaic {

/// Keys and values of one sequence, all layers, in blocks of kernels/attention_blocks.h.
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
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  /// Counts `count` more positions as filled; their keys and values have been written in all
  /// layers.
  void advance(std::int64_t count) noexcept { size_ += count; }
  /// Forgets all positions from `size` on.
  void truncate(std::int64_t size) noexcept { size_ = size; }
  /// The sequence length that rotary scalings which depend on it (dynamic, longrope) see at
  /// `position`: the whole prompt for its tokens, then one more a token, as transformers does in a
  /// generation.
  [[nodiscard]] std::int64_t rope_length(std::int64_t position) const noexcept {
    return std::max(prompt_tokens_, position + 1);
  }

  /// [ceil(capacity / 64)]: the blocks of one layer and KV head.
  [[nodiscard]] const std::byte* const* key_blocks(std::int64_t layer, std::int64_t kv_head) const;
  [[nodiscard]] const std::byte* const* value_blocks(std::int64_t layer,
                                                     std::int64_t kv_head) const;
  /// Writes one position of one head, rounding to the cache's precision. `key` and `value`
  /// [head_dim].
  void store(std::int64_t layer, std::int64_t kv_head, std::int64_t position, const float* key,
             const float* value) const;

 private:
  [[nodiscard]] std::int64_t first_block(std::int64_t layer, std::int64_t kv_head) const {
    return (layer * kv_heads_ + kv_head) * (capacity_ / kKeysPerBlock);
  }

  ByteBuffer bytes_;
  std::vector<std::byte*> key_blocks_;    // [layers, kv_heads, capacity / 64]
  std::vector<std::byte*> value_blocks_;  // [layers, kv_heads, capacity / 64]
  Precision precision_ = Precision::bf16;
  std::int64_t kv_heads_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t capacity_ = 0;  // a multiple of 64
  std::int64_t prompt_tokens_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace moesaic
