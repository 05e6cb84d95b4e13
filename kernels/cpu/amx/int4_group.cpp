#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/int4_group.h"

#include "kernels/cpu/amx/decoded_kernel.h"

namespace moesaic {

extern const GemmKernel amx_int4_group_kernel;
constinit const GemmKernel amx_int4_group_kernel =
    amx_decoded_kernel<Int4GroupDecoder>(Format::int4_group, "amx/int4_group");

}  // namespace moesaic
