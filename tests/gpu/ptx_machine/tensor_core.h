#pragma once

#include <cstdint>

namespace moesaic::ptx {

/// How tensor cores of a chip family sum (docs/numerics.md).
enum class Family {
  ampere,  ///< sm_80 to sm_89: products of 8 k at a time, 24 fractional bits
  hopper   ///< sm_90 and later: of 16 k, 25 fractional bits
};

/// The family of a chip, 90 for sm_90.
[[nodiscard]] constexpr Family family_of(int chip) noexcept {
  return chip < 90 ? Family::ampere : Family::hopper;
}

/// c + the products of 16 pairs of bf16, as one mma sums them. A fused sum aligns exact products
/// and c to the largest exponent among those that are not zero (that of a product is the sum of
/// its factors', -126 for a subnormal one), cuts each toward zero to so many fractional bits, adds
/// them exactly and cuts the result toward zero to f32. A NaN is 0x7fffffff. After MMA-Sim (arXiv
/// 2511.10909), which was compared with the chips; its zeros have the exponent -126, those of
/// an H200 none.
[[nodiscard]] float mma_sum(Family family, const std::uint16_t* a, const std::uint16_t* b, float c);

/// The 16 x 8 sums of one mma: a [16 rows][16 k], b [8 columns][16 k], c [16][8] in and out.
void mma_16x8x16(Family family, const std::uint16_t (*a)[16], const std::uint16_t (*b)[16],
                 float (*c)[8]);

/// Rows of an operand in nvfp4: e2m1 codes, and for 16 k an e4m3 scale whose sign does not count.
template <int Rows>
struct ScaledMatrix {
  std::uint8_t codes[Rows][64];
  std::uint8_t scales[Rows][4];
};

/// c + the products of 64 pairs of such numbers. The sum of 16 products and its scales'
/// significands are exact, its exponent that of both scales; these four and c are one fused sum
/// with 35 fractional bits.
[[nodiscard]] float scaled_sum(const ScaledMatrix<1>& a, const ScaledMatrix<1>& b, float c);

/// The 16 x 8 sums of one mma; c in and out.
void mma_16x8x64(const ScaledMatrix<16>& a, const ScaledMatrix<8>& b, float (*c)[8]);

}  // namespace moesaic::ptx
