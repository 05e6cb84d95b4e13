#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/int4_group.h"
#include "kernels/cpu/avx512_bf16/dot_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_bf16_int4_group_kernel;
constinit const GemmKernel avx512_bf16_int4_group_kernel =
    avx512_bf16_decoded_kernel<Int4GroupDecoder>(Format::int4_group, "avx512_bf16/int4_group");

}  // namespace moesaic
