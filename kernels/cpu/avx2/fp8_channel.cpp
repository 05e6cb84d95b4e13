#include "kernels/formats/fp8_channel.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e4m3.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* codes = steps.matrix->panel(steps.panel) + steps.first * 512;
  for (std::int64_t i = 0; i < steps.count * 512; i += 16) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 2 * i), e4m3_words(load_e4m3(codes + i)));
  }
}

END_TARGET

}  // namespace

extern const GemmKernel avx2_fp8_channel_kernel;
constinit const GemmKernel avx2_fp8_channel_kernel =
    avx2_decoded_kernel<decode>(Format::fp8_channel, "avx2/fp8_channel");

}  // namespace moesaic
