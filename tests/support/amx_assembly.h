#pragma once

#include <cstddef>
#include <cstdint>

namespace moesaic::test {

// AMX instructions for tests. The intrinsics of GCC 12 do not say that they touch memory; these do.

/// What LDTILECFG reads and STTILECFG writes.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, std::size_t tile_rows, std::size_t tile_row_bytes) {
    rows[tile] = static_cast<std::uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(tile_row_bytes);
  }
};

inline void configure_tiles(const TileConfiguration& configuration) {
  asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
}
inline TileConfiguration stored_configuration() {
  TileConfiguration configuration;
  asm volatile("sttilecfg %0" : "=m"(configuration)::"memory");
  return configuration;
}
inline void release_tiles() {
  asm volatile("tilerelease" ::: "memory");
}
template <int kTile>
void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile) : "memory");
}
template <int kTile>
void load_tile(const void* rows, std::ptrdiff_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
void store_tile(void* rows, std::ptrdiff_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
}

}  // namespace moesaic::test
