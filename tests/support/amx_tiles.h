#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/support/amx_decoder.h"
#include "tests/support/amx_products.h"

namespace moesaic::test {

/// Where the operand of an instruction is in memory.
struct AmxMemory {
  std::uintptr_t address = 0;
  std::uintptr_t stride = 0;  // bytes from one row to the next, modulo 2^64
};

/// The tile configuration and the eight tile registers of one thread.
class AmxTiles {
 public:
  static constexpr std::size_t kNumTiles = 8;

  /// What the configuration says of one tile. A tile without rows must not be used.
  struct Shape {
    std::size_t rows = 0;
    std::size_t row_bytes = 0;
  };

  /// Executes one instruction. Returns nullptr, or why hardware would fault; then nothing changed.
  [[nodiscard]] const char* execute(const AmxInstruction& instruction, const AmxMemory& memory);

  [[nodiscard]] const std::array<Shape, kNumTiles>& shapes() const { return shapes_; }

 private:
  const char* load_configuration(std::uintptr_t address);
  void store_configuration(std::uintptr_t address) const;
  void load(std::size_t tile, const AmxMemory& memory);
  void store(std::size_t tile, const AmxMemory& memory) const;
  [[nodiscard]] const char* tile_fault(std::size_t tile) const;
  [[nodiscard]] const char* product_fault(const AmxInstruction& product) const;
  void multiply_tiles(const AmxInstruction& product);

  bool is_configured_ = false;
  std::array<Shape, kNumTiles> shapes_{};
  alignas(64) std::array<AmxTile, kNumTiles> tiles_{};  // zero outside the shapes
};

}  // namespace moesaic::test
