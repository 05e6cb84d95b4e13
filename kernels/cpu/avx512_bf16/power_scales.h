#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/target.h"
#include "kernels/format.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// The e8m0 scales of a panel of mxfp4 or mxfp8, 16 a step, as `Groups` of group_kernel.h have
/// them. The smallest, a subnormal float, counts as zero.
class PowerScales {
 public:
  [[nodiscard]] __m512 scales(std::int64_t step, int /*group*/) const {
    const auto* codes = reinterpret_cast<const __m128i*>(scales_at(step));
    const __m512i exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(codes));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponents, 23));
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + step * kPanelColumns;
  }

 protected:
  explicit PowerScales(const std::byte* scales) : scales_(scales) {}

 private:
  const std::byte* scales_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
