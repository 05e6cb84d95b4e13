#define MOESAIC_RICH_AVX512
#include "kernels/formats/nvfp4.h"

#include "kernels/cpu/avx512/decoders/nvfp4.h"
#include "kernels/cpu/avx512_bf16/e2m1_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Nvfp4Groups : public E2m1Codes {
 public:
  Nvfp4Groups(const PackedMatrix& matrix, std::int64_t panel)
      : E2m1Codes(matrix.panel(panel)),
        scales_(start() + nvfp4_format::scales_offset(matrix.depth)) {}

  [[nodiscard]] __m512 scales(std::int64_t step, int group) const {
    const std::byte* at = scales_at(step) + group * kPanelColumns;
    return e4m3_to_floats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + step * 2 * kPanelColumns;
  }

 private:
  const std::byte* scales_;
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_nvfp4_kernel;
constinit const GemmKernel avx512_bf16_nvfp4_kernel =
    group_kernel<Nvfp4Groups, Nvfp4Decoder>(Format::nvfp4, "avx512_bf16/nvfp4");

}  // namespace moesaic
