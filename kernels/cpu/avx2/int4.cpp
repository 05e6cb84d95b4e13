#include "kernels/formats/int4.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// 16 times the codes: two lines of a tile from 64 bytes.
void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* codes = steps.matrix->panel(steps.panel) + steps.first * int4_format::kStepBytes;
  const __m256i upper = _mm256_set1_epi8(static_cast<char>(0xf0));
  for (std::int64_t pair = 0; pair < 8 * steps.count; ++pair, codes += 64, out += 128) {
    prefetch_lines(codes + kPrefetchBytes, 1);
    for (int half = 0; half < 2; ++half) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes) + half);
      auto* const lines = reinterpret_cast<__m256i*>(out) + half;
      _mm256_store_si256(lines, _mm256_and_si256(_mm256_slli_epi16(bytes, 4), upper));
      _mm256_store_si256(lines + 2, _mm256_and_si256(bytes, upper));
    }
  }
}

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_int4_kernel;
constinit const GemmKernel avx2_int4_kernel =
    avx2_decoded_int_kernel<decode>(Format::int4, "avx2/int4");

}  // namespace moesaic
