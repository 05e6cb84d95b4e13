#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_layout.h"

namespace moesaic {

/// 256 keys from `first_key` on, as the rows of a pass see them; ranges count from there.
struct KeyStrip {
  std::int64_t first_key;
  KeyRange seen;   // from the lowest key that a row sees to the highest
  KeyRange steps;  // the same in whole steps of 32
};

/// Whole steps of 32 keys of a block of values in bf16.
struct ValueRun {
  const std::byte* block;
  KeyRange keys;           // of the block
  std::int64_t strip_key;  // where the block starts in its strip
};

/// The runs of a strip, or some of them; ascending.
struct ValueRuns {
  static constexpr std::size_t kMost = kKeysPerStrip / kKeysPerBlock;

  ValueRun run[kMost];
  int count = 0;
};

/// Bytes of one panel of a block of values: 16 elements of the head, depth 64.
inline constexpr std::int64_t kValuePanelBytes = kKeysPerBlock * kPanelColumns * 2;

inline bool are_finite(const ValueRun& run, std::int64_t padded_dim) {
  constexpr std::uint64_t kExponents = 0x7f80'7f80'7f80'7f80;
  constexpr std::uint64_t kLowestBits = 0x0080'0080'0080'0080;
  constexpr std::uint64_t kSigns = 0x8000'8000'8000'8000;
  std::uint64_t carries = 0;  // an exponent of ones carries into the place of the sign
  for (std::int64_t panel = 0; panel < padded_dim / kPanelColumns; ++panel) {
    for (std::int64_t key = run.keys.first; key < run.keys.end; key += kStepDepth) {
      std::uint64_t words[kTileBytes / 8];
      std::memcpy(words, run.block + panel * kValuePanelBytes + key / kStepDepth * kTileBytes,
                  sizeof words);
      for (const std::uint64_t word : words) carries |= (word & kExponents) + kLowestBits;
    }
  }
  return (carries & kSigns) == 0;
}

/// A copy of the run, at its place in the block `out`, in which all keys outside `visible` are 0.
inline void copy_visible(const ValueRun& run, std::int64_t padded_dim, KeyRange visible,
                         std::byte* out) {
  for (std::int64_t panel = 0; panel < padded_dim / kPanelColumns; ++panel) {
    for (std::int64_t key = run.keys.first; key < run.keys.end; ++key) {
      const bool seen = visible.first <= key && key < visible.end;
      const std::int64_t line = panel * kValuePanelBytes + key / 2 * 64 + key % 2 * 2;
      for (std::int64_t column = 0; column < kPanelColumns; ++column) {
        std::uint16_t bits = 0;
        if (seen) std::memcpy(&bits, run.block + line + column * 4, sizeof bits);
        std::memcpy(out + line + column * 4, &bits, sizeof bits);
      }
    }
  }
}

}  // namespace moesaic
