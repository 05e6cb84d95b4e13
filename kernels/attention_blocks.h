#pragma once

#include <cstddef>
#include <cstdint>

namespace moesaic {

struct VectorKernels;

/// How keys and values are kept, and how attention over them is computed (docs/numerics.md).
enum class AttentionKind { bf16, f32 };

/// Keys and values are kept in blocks of this many positions, counted from position 0 of the
/// sequence.
inline constexpr std::int64_t kKeysPerBlock = 64;
/// Keys that lie side by side within a block.
inline constexpr std::int64_t kKeysPerPanel = 16;

// What a block of one KV head looks like is known to attention_blocks.cpp and to the kernels. In
// bf16 both are panels of formats/bf16.h, so that both products of attention are products with
// packed weights:
//
//   keys   4 panels of 16 positions, depth = the elements of the head, rounded up to 32
//   values panels of 16 elements of the head, rounded up; depth = the 64 positions
//
// In f32 it is
//
//   keys   [4][head_dim][16]: position p, element d at panel p / 16 of the block, (d, p % 16)
//   values [64][value_dim]
//
// Blocks start at multiples of 64 bytes. A position is complete, with its padding, once its key and
// its value have been stored. Positions that no row sees may hold anything, NaN included: memory
// for blocks need not be cleared.

[[nodiscard]] std::int64_t key_block_bytes(AttentionKind kind, std::int64_t head_dim) noexcept;
[[nodiscard]] std::int64_t value_block_bytes(AttentionKind kind, std::int64_t value_dim) noexcept;

/// One position's place in a block.
struct BlockSlot {
  std::byte* block = nullptr;
  std::int64_t slot = 0;  // position % kKeysPerBlock
};

/// Writes the key [head_dim] of one position, rounded to nearest even.
void store_key(AttentionKind kind, const VectorKernels& vector, const float* key,
               std::int64_t head_dim, const BlockSlot& at) noexcept;
/// Writes the value [value_dim] of one position, rounded to nearest even.
void store_value(AttentionKind kind, const VectorKernels& vector, const float* value,
                 std::int64_t value_dim, const BlockSlot& at) noexcept;

}  // namespace moesaic
