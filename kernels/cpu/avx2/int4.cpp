#include "kernels/formats/int4.h"

#include "kernels/cpu/avx2/decoded.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma")

/// 16 times each code.
void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* codes = steps.matrix->panel(steps.panel) + steps.first * 512;
  const __m256i upper = _mm256_set1_epi8(static_cast<char>(0xf0));
  for (std::int64_t pair = 0; pair < steps.count * 8; ++pair, codes += 64, out += 128) {
    for (std::int64_t half = 0; half < 64; half += 32) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + half));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + half),
                         _mm256_and_si256(_mm256_slli_epi16(bytes, 4), upper));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + 64 + half),
                         _mm256_and_si256(bytes, upper));
    }
  }
}

END_TARGET

}  // namespace

extern const GemmKernel avx2_int4_kernel;
constinit const GemmKernel avx2_int4_kernel =
    avx2_decoded_int_kernel<decode>(Format::int4, "avx2/int4");

}  // namespace moesaic
