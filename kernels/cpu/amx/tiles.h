#pragma once

#include <cstddef>
#include <cstdint>

namespace moesaic {
namespace {

// AMX instructions on tile registers 0 to 7. Written in assembly: GCC 12's intrinsics do not say
// that they read and write memory.

/// LDTILECFG's operand: palette 1, 16 rows of 64 bytes at most.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

inline void load_config(const TileConfig& config) {
  asm volatile("ldtilecfg (%0)" : : "r"(&config) : "memory");
}
inline void release_tiles() {
  asm volatile("tilerelease");
}
template <int Tile>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile>
inline void load_tile(const void* from, std::size_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(from), "r"(stride) : "memory");
}
template <int Tile>
inline void store_tile(void* to, std::size_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(Tile), "r"(to), "r"(stride) : "memory");
}

/// Pairs of bf16, summed in the tile order.
struct Bf16Product {
  template <int Sum, int Rows, int Weights>
  static void add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Rows), "i"(Weights));
  }
};
/// Four bytes, all with their signs; sums are int32.
struct SignedByteProduct {
  template <int Sum, int Rows, int Weights>
  static void add() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Rows), "i"(Weights));
  }
};
/// Four bytes, those of the rows without sign; sums are int32.
struct ByteProduct {
  template <int Sum, int Rows, int Weights>
  static void add() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Rows), "i"(Weights));
  }
};

}  // namespace
}  // namespace moesaic
