#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512_bf16/group_sums.h"
#include "kernels/formats/e4m3_body.h"
#include "kernels/formats/elements.h"

// Codes of kernels/formats/e4m3_body.h as bf16. Internal to each kernel that has them.

namespace moesaic {
namespace {

/// Upper or lower bytes of the values of codes 0 to 127.
constexpr auto e4m3_bytes(int shift) {
  std::array<std::uint8_t, 128> bytes{};
  for (std::size_t code = 0; code < bytes.size(); ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    bytes[code] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> shift);
  }
  return bytes;
}
alignas(64) constexpr auto kUpperE4m3Bytes = e4m3_bytes(24);
alignas(64) constexpr auto kLowerE4m3Bytes = e4m3_bytes(16);

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Codes that a panel starts with, as `Groups` of group_kernel.h have them. The look-ups do not
/// take the units that multiply, which vgf2p8affineqb does.
class E4m3Codes {
 public:
  using Sum = PairSum;
  static constexpr bool kOffsets = false;
  static constexpr std::int64_t kStepBytes = e4m3_body::kStepBytes;

  template <typename Emit>
  [[gnu::always_inline]] void codes(std::int64_t step, const Emit& emit) const {
    const std::byte* const from = codes_ + step * kStepBytes;
    const __m512i uppers[] = {_mm512_load_si512(kUpperE4m3Bytes.data()),
                              _mm512_load_si512(kUpperE4m3Bytes.data() + 64)};
    const __m512i lowers[] = {_mm512_load_si512(kLowerE4m3Bytes.data()),
                              _mm512_load_si512(kLowerE4m3Bytes.data() + 64)};
    constexpr int kAndOr = 0xea;  // (a & b) | c
#pragma GCC unroll 8
    for (int pair = 0; pair < 8; ++pair) {
      const __m512i codes = _mm512_loadu_si512(from + 64 * pair);
      const __m512i upper = _mm512_ternarylogic_epi32(
          codes, _mm512_set1_epi8(static_cast<char>(0x80)),
          _mm512_permutex2var_epi8(uppers[0], codes, uppers[1]), kAndOr);  // by seven bits
      const __m512i lower = _mm512_permutex2var_epi8(lowers[0], codes, lowers[1]);
      emit(2 * pair, _mm512_unpacklo_epi8(lower, upper));
      emit(2 * pair + 1, _mm512_unpackhi_epi8(lower, upper));
    }
  }

 protected:
  explicit E4m3Codes(const std::byte* panel) : codes_(panel) {}
  [[nodiscard]] const std::byte* start() const {
    return codes_;
  }

 private:
  const std::byte* codes_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
