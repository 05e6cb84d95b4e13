#include "kernels/formats/e2m1_body.h"

#include <array>
#include <bit>

namespace moesaic::e2m1_body {
namespace {

constexpr std::uint16_t word_of(std::uint32_t code) {
  const std::uint32_t exponent = code >> 1 & 3;
  const bool is_one = code & 1 ? exponent == 0 : exponent != 0;  // the significand: 1, not 1.5
  if ((code & 7) == 0) return 0;
  return static_cast<std::uint16_t>((code & 8) << 12 | exponent << 7 | (is_one ? 1 : 0));
}

/// What the code of k = 8 j + i puts into the two words of a column, the even parity's low.
constexpr auto kWords = [] {
  std::array<std::array<std::uint32_t, 16>, 8> words{};
  for (std::uint32_t i = 0; i < 8; ++i) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      const std::uint32_t word = std::rotr(word_of(code), static_cast<int>(i / 2 * 2));
      words[i][code] = i % 2 == 0 ? word : word << 16;
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
  const auto packed = load_as<std::uint16_t>(step + k / 8 * 64 + (column * 2 + k % 2) * 2);
  const auto word = std::rotl(packed, static_cast<int>(k % 8 / 2 * 2));
  const int exponent = word >> 7 & 3;
  const bool is_one = (word & 1) != 0;
  if (exponent == 0 && !is_one) return 0;
  const float significand = is_one ? 1.0F : 1.5F;
  const float magnitude = significand * static_cast<float>(1 << exponent) / 2;
  return (word & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace moesaic::e2m1_body
