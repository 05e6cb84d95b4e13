#include "src/model/kv_cache.h"

#include <cassert>

#include "kernels/vector_kernels.h"

namespace moesaic {
namespace {

template <typename T>
T converted(float value);
template <>
float converted<float>(float value) {
  return value;
}
template <>
BFloat16 converted<BFloat16>(float value) {
  return to_bfloat16(value);
}

/// `key_column`: element d goes to key_column[d * kKeysPerPanel].
template <typename T>
void store_position(std::int64_t head_dim, const float* key, const float* value, T* key_column,
                    T* value_row) {
  for (std::int64_t d = 0; d < head_dim; ++d) {
    key_column[d * kKeysPerPanel] = converted<T>(key[d]);
    value_row[d] = converted<T>(value[d]);
  }
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, Precision precision, const Extent& extent)
    : bytes_(static_cast<std::size_t>(bytes(config, precision, extent.capacity))),
      precision_(precision),
      kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      capacity_(round_up(extent.capacity, kKeysPerPanel)),
      prompt_tokens_(extent.prompt_tokens) {}

std::int64_t KvCache::bytes(const ModelConfig& config, Precision precision, std::int64_t capacity) {
  return 2 * config.num_layers * config.num_kv_heads * config.head_dim *
         round_up(capacity, kKeysPerPanel) * element_bytes(precision);
}

std::byte* KvCache::keys(std::int64_t layer, std::int64_t kv_head) const {
  const std::int64_t head_bytes = capacity_ * head_dim_ * element_bytes(precision_);
  return bytes_.data() + 2 * (layer * kv_heads_ + kv_head) * head_bytes;
}

std::byte* KvCache::values(std::int64_t layer, std::int64_t kv_head) const {
  return keys(layer, kv_head) + capacity_ * head_dim_ * element_bytes(precision_);
}

void KvCache::store(std::int64_t layer, std::int64_t kv_head, std::int64_t position,
                    const float* key, const float* value) const {
  assert(position < capacity_);
  const std::int64_t key_index =
      position / kKeysPerPanel * kKeysPerPanel * head_dim_ + position % kKeysPerPanel;
  const std::int64_t value_index = position * head_dim_;
  if (precision_ == Precision::bf16) {
    store_position(head_dim_, key, value,
                   reinterpret_cast<BFloat16*>(keys(layer, kv_head)) + key_index,
                   reinterpret_cast<BFloat16*>(values(layer, kv_head)) + value_index);
  } else {
    store_position(head_dim_, key, value,
                   reinterpret_cast<float*>(keys(layer, kv_head)) + key_index,
                   reinterpret_cast<float*>(values(layer, kv_head)) + value_index);
  }
}

}  // namespace moesaic
