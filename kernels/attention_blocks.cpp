#include "kernels/attention_blocks.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/dtype.h"
#include "kernels/formats/bf16.h"
#include "kernels/vector_kernels.h"

namespace moesaic {
namespace {

/// Of the values of a block: their depth is its positions.
constexpr std::int64_t kValuePanelElements = kKeysPerBlock * kPanelColumns;

/// call(first, elements, count) for `padded` elements of a row as bf16, some at a time; those that
/// it lacks are zeros. `padded` and `count` are multiples of 16.
template <typename Call>
void for_each_rounded(const VectorKernels& vector, std::span<const float> row, std::int64_t padded,
                      const Call& call) {
  constexpr std::int64_t kMost = 256;
  BFloat16 rounded[kMost];
  for (std::int64_t first = 0; first < padded; first += kMost) {
    const std::int64_t count = std::min(kMost, padded - first);
    const std::int64_t there = std::min(count, std::ssize(row) - first);
    vector.to_bf16(row.data() + first, there, rounded);
    std::fill(rounded + there, rounded + count, BFloat16{});
    call(first, rounded, count);
  }
}

void store_bf16_key(const VectorKernels& vector, std::span<const float> key, const BlockSlot& at) {
  const std::int64_t depth = round_up(std::ssize(key), kStepDepth);
  BFloat16* const panel =
      reinterpret_cast<BFloat16*>(at.block) + at.slot / kKeysPerPanel * kKeysPerPanel * depth;
  BFloat16* const pairs = panel + bf16_format::element_index(at.slot % kKeysPerPanel, 0);
  for_each_rounded(
      vector, key, depth, [&](std::int64_t first, const BFloat16* elements, std::int64_t count) {
        for (std::int64_t d = 0; d < count; d += 2) {
          std::memcpy(pairs + (first + d) * kPanelColumns, elements + d, 2 * sizeof(BFloat16));
        }
      });
}

void store_bf16_value(const VectorKernels& vector, std::span<const float> value,
                      const BlockSlot& at) {
  BFloat16* const start =
      reinterpret_cast<BFloat16*>(at.block) + bf16_format::element_index(0, at.slot);
  for_each_rounded(vector, value, round_up(std::ssize(value), kPanelColumns),
                   [&](std::int64_t first, const BFloat16* elements, std::int64_t count) {
                     for (std::int64_t d = 0; d < count; d += kPanelColumns) {
                       BFloat16* const columns =
                           start + (first + d) / kPanelColumns * kValuePanelElements;
                       for (std::int64_t c = 0; c < kPanelColumns; ++c) {
                         columns[2 * c] = elements[d + c];
                       }
                     }
                   });
}

void store_f32_key(std::span<const float> key, const BlockSlot& at) {
  float* column = reinterpret_cast<float*>(at.block) +
                  at.slot / kKeysPerPanel * kKeysPerPanel * std::ssize(key) +
                  at.slot % kKeysPerPanel;
  for (const float element : key) {
    *column = element;
    column += kKeysPerPanel;
  }
}

void store_f32_value(std::span<const float> value, const BlockSlot& at) {
  std::ranges::copy(value, reinterpret_cast<float*>(at.block) + at.slot * std::ssize(value));
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

void store_key(AttentionKind kind, const VectorKernels& vector, const float* key,
               std::int64_t head_dim, const BlockSlot& at) noexcept {
  const std::span row(key, static_cast<std::size_t>(head_dim));
  kind == AttentionKind::bf16 ? store_bf16_key(vector, row, at) : store_f32_key(row, at);
}

void store_value(AttentionKind kind, const VectorKernels& vector, const float* value,
                 std::int64_t value_dim, const BlockSlot& at) noexcept {
  const std::span row(value, static_cast<std::size_t>(value_dim));
  kind == AttentionKind::bf16 ? store_bf16_value(vector, row, at) : store_f32_value(row, at);
}

}  // namespace moesaic
