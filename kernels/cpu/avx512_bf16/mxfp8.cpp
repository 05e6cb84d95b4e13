#define MOESAIC_RICH_AVX512
#include "kernels/formats/mxfp8.h"

#include "kernels/cpu/avx512/decoders/mxfp8.h"
#include "kernels/cpu/avx512_bf16/e4m3_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"
#include "kernels/cpu/avx512_bf16/power_scales.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Mxfp8Groups : public PowerScales, public E4m3Codes {
 public:
  Mxfp8Groups(const PackedMatrix& matrix, std::int64_t panel)
      : PowerScales(matrix.panel(panel) + mxfp8_format::scales_offset(matrix.depth)),
        E4m3Codes(matrix.panel(panel)) {}
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_mxfp8_kernel;
constinit const GemmKernel avx512_bf16_mxfp8_kernel =
    group_kernel<Mxfp8Groups, Mxfp8Decoder>(Format::mxfp8, "avx512_bf16/mxfp8");

}  // namespace moesaic
