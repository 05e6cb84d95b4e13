#define MOESAIC_RICH_AVX512
#include "kernels/formats/mxfp4.h"

#include "kernels/cpu/avx512/decoders/mxfp4.h"
#include "kernels/cpu/avx512_bf16/e2m1_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"
#include "kernels/cpu/avx512_bf16/power_scales.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Mxfp4Groups : public PowerScales, public E2m1Codes {
 public:
  Mxfp4Groups(const PackedMatrix& matrix, std::int64_t panel)
      : PowerScales(matrix.panel(panel) + mxfp4_format::scales_offset(matrix.depth)),
        E2m1Codes(matrix.panel(panel)) {}
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_mxfp4_kernel;
constinit const GemmKernel avx512_bf16_mxfp4_kernel =
    group_kernel<Mxfp4Groups, Mxfp4Decoder>(Format::mxfp4, "avx512_bf16/mxfp4");

}  // namespace moesaic
