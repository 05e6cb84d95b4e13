#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moesaic {

/// Nibble i (bits 4i) of a word as byte i.
[[nodiscard]] constexpr std::uint64_t spread_nibbles(std::uint32_t word) noexcept {
  std::uint64_t bytes = word;
  bytes = (bytes | bytes << 16) & 0x0000ffff0000ffffU;
  bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ffU;
  return (bytes | bytes << 4) & 0x0f0f0f0f0f0f0f0fU;
}

/// Byte j of word i becomes byte i of word j.
constexpr void transpose_bytes(std::array<std::uint64_t, 8>& words) noexcept {
  const auto swap_blocks = [&](std::size_t distance, std::uint64_t mask) {
    const std::size_t bits = 8 * distance;
    for (std::size_t i = 0; i < 8; ++i) {
      if ((i & distance) != 0) continue;
      const std::uint64_t swapped = (words[i] >> bits ^ words[i + distance]) & mask;
      words[i + distance] ^= swapped;
      words[i] ^= swapped << bits;
    }
  };
  swap_blocks(4, 0x00000000ffffffffU);
  swap_blocks(2, 0x0000ffff0000ffffU);
  swap_blocks(1, 0x00ff00ff00ff00ffU);
}

/// Nibble `index`, the first of each byte low.
[[nodiscard]] inline std::uint8_t nibble(const std::byte* packed, std::int64_t index) noexcept {
  const auto byte = std::to_integer<unsigned>(packed[index / 2]);
  return static_cast<std::uint8_t>(byte >> (index % 2 * 4) & 15U);
}

/// `count` nibbles, the first of each byte low, one a byte.
inline void unpack_nibbles(const std::byte* packed, std::int64_t count, std::uint8_t* codes) {
  std::int64_t done = 0;
  for (; done + 8 <= count; done += 8) {
    std::uint32_t word = 0;
    std::memcpy(&word, packed + done / 2, sizeof word);
    const std::uint64_t bytes = spread_nibbles(word);
    std::memcpy(codes + done, &bytes, sizeof bytes);
  }
  for (; done < count; ++done) codes[done] = nibble(packed, done);
}

}  // namespace moesaic
