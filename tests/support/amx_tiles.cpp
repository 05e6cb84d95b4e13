#include "tests/support/amx_tiles.h"

#include <algorithm>
#include <cstring>

namespace moesaic::test {
namespace {

// What LDTILECFG reads and STTILECFG writes.
struct Configuration {
  std::uint8_t palette;
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];  // palette 1 has eight tiles: the rest is reserved, here and below
  std::uint8_t rows[16];
};
static_assert(sizeof(Configuration) == 64);

template <typename Element, std::size_t Size>
bool is_zero_from(std::size_t first, const Element (&values)[Size]) {
  return std::all_of(values + first, values + Size, [](Element value) { return value == 0; });
}

const char* configuration_fault(const Configuration& configuration) {
  if (configuration.palette == 0) return nullptr;
  if (configuration.palette > 1) return "this palette does not exist";
  if (!is_zero_from(0, configuration.reserved) ||
      !is_zero_from(AmxTiles::kNumTiles, configuration.row_bytes) ||
      !is_zero_from(AmxTiles::kNumTiles, configuration.rows)) {
    return "reserved bytes of the configuration are not zero";
  }
  for (std::size_t i = 0; i < AmxTiles::kNumTiles; ++i) {
    if (configuration.rows[i] > 16) return "a tile of more than 16 rows";
    if (configuration.row_bytes[i] > 64) return "a tile of more than 64 bytes a row";
    if ((configuration.rows[i] == 0) != (configuration.row_bytes[i] == 0)) {
      return "a tile of rows without bytes or bytes without rows";
    }
  }
  // Hardware resumes interrupted loads and stores there. Nobody writes one by hand.
  if (configuration.start_row != 0) return "a start row other than 0 is not emulated";
  return nullptr;
}

std::byte* row_address(const AmxMemory& memory, std::size_t row) {
  return reinterpret_cast<std::byte*>(memory.address + row * memory.stride);
}

}  // namespace

const char* AmxTiles::execute(const AmxInstruction& instruction, const AmxMemory& memory) {
  const char* fault = nullptr;
  switch (instruction.operation) {
    case AmxOperation::ldtilecfg:
      return load_configuration(memory.address);
    case AmxOperation::sttilecfg:
      store_configuration(memory.address);
      break;
    case AmxOperation::tilerelease:
      *this = {};
      break;
    case AmxOperation::tilezero:
      fault = tile_fault(instruction.tile);
      if (fault == nullptr) tiles_[instruction.tile] = {};
      break;
    case AmxOperation::tileload:
      fault = tile_fault(instruction.tile);
      if (fault == nullptr) load(instruction.tile, memory);
      break;
    case AmxOperation::tilestored:
      fault = tile_fault(instruction.tile);
      if (fault == nullptr) store(instruction.tile, memory);
      break;
    default:
      fault = product_fault(instruction);
      if (fault == nullptr) multiply_tiles(instruction);
  }
  return fault;
}

const char* AmxTiles::load_configuration(std::uintptr_t address) {
  Configuration configuration;
  std::memcpy(&configuration, reinterpret_cast<const void*>(address), sizeof configuration);
  if (const char* fault = configuration_fault(configuration)) return fault;
  *this = {};
  is_configured_ = configuration.palette != 0;
  for (std::size_t i = 0; is_configured_ && i < kNumTiles; ++i) {
    shapes_[i] = {configuration.rows[i], configuration.row_bytes[i]};
  }
  return nullptr;
}

void AmxTiles::store_configuration(std::uintptr_t address) const {
  Configuration configuration = {};
  configuration.palette = is_configured_ ? 1 : 0;
  for (std::size_t i = 0; i < kNumTiles; ++i) {
    configuration.rows[i] = static_cast<std::uint8_t>(shapes_[i].rows);
    configuration.row_bytes[i] = static_cast<std::uint16_t>(shapes_[i].row_bytes);
  }
  std::memcpy(reinterpret_cast<void*>(address), &configuration, sizeof configuration);
}

void AmxTiles::load(std::size_t tile, const AmxMemory& memory) {
  for (std::size_t row = 0; row < shapes_[tile].rows; ++row) {
    std::memcpy(tiles_[tile][row].data(), row_address(memory, row), shapes_[tile].row_bytes);
  }
}

void AmxTiles::store(std::size_t tile, const AmxMemory& memory) const {
  for (std::size_t row = 0; row < shapes_[tile].rows; ++row) {
    std::memcpy(row_address(memory, row), tiles_[tile][row].data(), shapes_[tile].row_bytes);
  }
}

const char* AmxTiles::tile_fault(std::size_t tile) const {
  if (!is_configured_) return "tiles are not configured";
  if (shapes_[tile].rows == 0) return "a tile that the configuration leaves empty";
  if (shapes_[tile].row_bytes % 4 != 0) return "a tile whose rows are not a multiple of 4 bytes";
  return nullptr;
}

const char* AmxTiles::product_fault(const AmxInstruction& product) const {
  if (product.tile == product.a || product.tile == product.b || product.a == product.b) {
    return "the three tiles of a product are not different ones";
  }
  for (const std::size_t tile : {product.tile, product.a, product.b}) {
    if (const char* fault = tile_fault(tile)) return fault;
  }
  const Shape& a = shapes_[product.a];
  const Shape& b = shapes_[product.b];
  const Shape& c = shapes_[product.tile];
  if (c.rows != a.rows) return "C and A do not have the same number of rows";
  if (c.row_bytes != b.row_bytes) return "C and B do not have the same number of columns";
  if (a.row_bytes / 4 != b.rows) return "B does not have a row for each 4 bytes of a row of A";
  return nullptr;
}

void AmxTiles::multiply_tiles(const AmxInstruction& product) {
  multiply({.operation = product.operation,
            .a = tiles_[product.a],
            .b = tiles_[product.b],
            .c = tiles_[product.tile],
            .rows = shapes_[product.tile].rows,
            .depth = shapes_[product.b].rows,
            .columns = shapes_[product.tile].row_bytes / 4});
}

}  // namespace moesaic::test
