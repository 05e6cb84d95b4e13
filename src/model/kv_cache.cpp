#include "src/model/kv_cache.h"

#include <cassert>

#include "kernels/format.h"

namespace moesaic {
namespace {

std::int64_t block_bytes(const ModelConfig& config, Precision precision) {
  const AttentionKind kind = attention_kind(precision);
  return key_block_bytes(kind, config.head_dim) + value_block_bytes(kind, config.head_dim);
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, Precision precision, const Extent& extent)
    : bytes_(static_cast<std::size_t>(bytes(config, precision, extent.capacity))),
      precision_(precision),
      kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      capacity_(round_up(extent.capacity, kKeysPerBlock)),
      prompt_tokens_(extent.prompt_tokens) {
  const std::int64_t key_bytes = key_block_bytes(attention_kind(precision), config.head_dim);
  const std::int64_t blocks = first_block(config.num_layers, 0);
  for (std::int64_t block = 0; block < blocks; ++block) {
    key_blocks_.push_back(bytes_.data() + block * block_bytes(config, precision));
    value_blocks_.push_back(key_blocks_.back() + key_bytes);
  }
}

std::int64_t KvCache::bytes(const ModelConfig& config, Precision precision, std::int64_t capacity) {
  return config.num_layers * config.num_kv_heads *
         (round_up(capacity, kKeysPerBlock) / kKeysPerBlock) * block_bytes(config, precision);
}

const std::byte* const* KvCache::key_blocks(std::int64_t layer, std::int64_t kv_head) const {
  return key_blocks_.data() + first_block(layer, kv_head);
}

const std::byte* const* KvCache::value_blocks(std::int64_t layer, std::int64_t kv_head) const {
  return value_blocks_.data() + first_block(layer, kv_head);
}

void KvCache::store(std::int64_t layer, std::int64_t kv_head, std::int64_t position,
                    const float* key, const float* value) const {
  assert(position < capacity_);
  const AttentionKind kind = attention_kind(precision_);
  const std::int64_t slot = position % kKeysPerBlock;
  const auto block =
      static_cast<std::size_t>(first_block(layer, kv_head) + position / kKeysPerBlock);
  store_key(kind, key, head_dim_, {key_blocks_[block], slot});
  store_value(kind, value, head_dim_, {value_blocks_[block], slot});
}

}  // namespace moesaic
