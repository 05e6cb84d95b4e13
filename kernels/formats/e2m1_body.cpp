#include "kernels/formats/e2m1_body.h"

#include <array>

#include "kernels/formats/elements.h"

namespace moesaic::e2m1_body {
namespace {

/// A code as it is packed, and back.
constexpr std::uint32_t flip_flag(std::uint32_t code) {
  if ((code & 7) == 0) return 0;
  return (code & 6) == 0 ? code : code ^ 1;
}

/// What the code of k = 8 j + i puts into the two words of a column, the even parity's low.
constexpr auto kWords = [] {
  std::array<std::array<std::uint32_t, 16>, 8> words{};
  for (std::uint32_t i = 0; i < 8; ++i) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      words[i][code] = flip_flag(code) << (i / 2 * 4 + i % 2 * 16);
    }
  }
  return words;
}();

std::uint32_t pack_words(std::uint64_t eight) {
  std::uint32_t words = 0;
  for (const auto& of_code : kWords) {
    words |= of_code[eight & 15];
    eight >>= 8;
  }
  return words;
}

}  // namespace

void pack_step(const StepCodes<kStepDepth>& codes, std::byte* out) {
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    for (std::int64_t j = 0; j < 4; ++j) {
      store_as(out + j * 64 + r * 4, pack_words(load_codes(codes.row[r] + j * 8)));
    }
  }
}

float element(const std::byte* step, std::int64_t column, std::int64_t k) noexcept {
  const auto word = load_as<std::uint16_t>(step + k / 8 * 64 + (column * 2 + k % 2) * 2);
  return e2m1_to_float(
      static_cast<std::uint8_t>(flip_flag(std::uint32_t{word} >> k % 8 / 2 * 4 & 15)));
}

}  // namespace moesaic::e2m1_body
