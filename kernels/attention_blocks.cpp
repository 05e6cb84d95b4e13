#include "kernels/attention_blocks.h"

#include "base/dtype.h"

namespace moesaic {
namespace {

std::int64_t element_bytes(AttentionKind kind) {
  return kind == AttentionKind::bf16 ? 2 : 4;
}

void put(float x, float& element) {
  element = x;
}
void put(float x, BFloat16& element) {
  element = to_bfloat16(x);
}

template <typename Element>
void put_key(const float* key, std::int64_t head_dim, const BlockSlot& at) {
  auto* elements = reinterpret_cast<Element*>(at.block) +
                   at.slot / kKeysPerPanel * kKeysPerPanel * head_dim + at.slot % kKeysPerPanel;
  for (std::int64_t d = 0; d < head_dim; ++d) put(key[d], elements[d * kKeysPerPanel]);
}

template <typename Element>
void put_value(const float* value, std::int64_t value_dim, const BlockSlot& at) {
  auto* elements = reinterpret_cast<Element*>(at.block) + at.slot * value_dim;
  for (std::int64_t d = 0; d < value_dim; ++d) put(value[d], elements[d]);
}

}  // namespace

std::int64_t key_block_bytes(AttentionKind kind, std::int64_t head_dim) noexcept {
  return kKeysPerBlock * head_dim * element_bytes(kind);
}

std::int64_t value_block_bytes(AttentionKind kind, std::int64_t value_dim) noexcept {
  return kKeysPerBlock * value_dim * element_bytes(kind);
}

void store_key(AttentionKind kind, const float* key, std::int64_t head_dim,
               const BlockSlot& at) noexcept {
  kind == AttentionKind::bf16 ? put_key<BFloat16>(key, head_dim, at)
                              : put_key<float>(key, head_dim, at);
}

void store_value(AttentionKind kind, const float* value, std::int64_t value_dim,
                 const BlockSlot& at) noexcept {
  kind == AttentionKind::bf16 ? put_value<BFloat16>(value, value_dim, at)
                              : put_value<float>(value, value_dim, at);
}

}  // namespace moesaic
