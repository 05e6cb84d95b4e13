#include "kernels/attention_blocks.h"

#include <algorithm>

#include "base/dtype.h"
#include "kernels/formats/bf16.h"

namespace moesaic {
namespace {

/// Of the values of a block: their depth is its positions.
constexpr std::int64_t kValuePanelElements = kKeysPerBlock * kPanelColumns;

void store_bf16_key(const float* key, std::int64_t head_dim, const BlockSlot& at) {
  const std::int64_t depth = round_up(head_dim, kStepDepth);
  BFloat16* const panel =
      reinterpret_cast<BFloat16*>(at.block) + at.slot / kKeysPerPanel * kKeysPerPanel * depth;
  const std::int64_t column = at.slot % kKeysPerPanel;
  for (std::int64_t d = 0; d < depth; ++d) {
    panel[bf16_format::element_index(column, d)] = d < head_dim ? to_bfloat16(key[d]) : BFloat16{};
  }
}

void store_bf16_value(const float* value, std::int64_t value_dim, const BlockSlot& at) {
  auto* const elements = reinterpret_cast<BFloat16*>(at.block);
  for (std::int64_t d = 0; d < round_up(value_dim, kPanelColumns); ++d) {
    elements[d / kPanelColumns * kValuePanelElements +
             bf16_format::element_index(d % kPanelColumns, at.slot)] =
        d < value_dim ? to_bfloat16(value[d]) : BFloat16{};
  }
}

void store_f32_key(const float* key, std::int64_t head_dim, const BlockSlot& at) {
  float* const column = reinterpret_cast<float*>(at.block) +
                        at.slot / kKeysPerPanel * kKeysPerPanel * head_dim +
                        at.slot % kKeysPerPanel;
  for (std::int64_t d = 0; d < head_dim; ++d) column[d * kKeysPerPanel] = key[d];
}

void store_f32_value(const float* value, std::int64_t value_dim, const BlockSlot& at) {
  std::copy_n(value, value_dim, reinterpret_cast<float*>(at.block) + at.slot * value_dim);
}

}  // namespace

std::int64_t key_block_bytes(AttentionKind kind, std::int64_t head_dim) noexcept {
  return kind == AttentionKind::bf16
             ? kKeysPerBlock / kKeysPerPanel * bf16_format::panel_bytes(head_dim)
             : kKeysPerBlock * head_dim * 4;
}

std::int64_t value_block_bytes(AttentionKind kind, std::int64_t value_dim) noexcept {
  return kind == AttentionKind::bf16 ? kKeysPerBlock * round_up(value_dim, kPanelColumns) * 2
                                     : kKeysPerBlock * value_dim * 4;
}

void store_key(AttentionKind kind, const float* key, std::int64_t head_dim,
               const BlockSlot& at) noexcept {
  (kind == AttentionKind::bf16 ? store_bf16_key : store_f32_key)(key, head_dim, at);
}

void store_value(AttentionKind kind, const float* value, std::int64_t value_dim,
                 const BlockSlot& at) noexcept {
  (kind == AttentionKind::bf16 ? store_bf16_value : store_f32_value)(value, value_dim, at);
}

}  // namespace moesaic
