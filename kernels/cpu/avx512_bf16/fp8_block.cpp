#define MOESAIC_RICH_AVX512
#include "kernels/formats/fp8_block.h"

#include <bit>

#include "kernels/cpu/avx512/decoders/fp8_block.h"
#include "kernels/cpu/avx512_bf16/e4m3_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// One scale for all of a panel's columns; those of a block's steps are equal.
class Fp8BlockGroups : public E4m3Codes {
 public:
  Fp8BlockGroups(const PackedMatrix& matrix, std::int64_t panel)
      : E4m3Codes(matrix.panel(panel)),
        scales_(start() + fp8_block_format::scales_offset(matrix.depth)),
        block_shift_(std::countr_zero(static_cast<unsigned>(matrix.layout.group / kStepDepth))) {}

  [[nodiscard]] __m512 scales(std::int64_t step, int /*group*/) const {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(scales_at(step)));
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + (step >> block_shift_) * 4;
  }

 private:
  const std::byte* scales_;
  int block_shift_;
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_fp8_block_kernel;
constinit const GemmKernel avx512_bf16_fp8_block_kernel =
    group_kernel<Fp8BlockGroups, Fp8BlockDecoder>(Format::fp8_block, "avx512_bf16/fp8_block");

}  // namespace moesaic
