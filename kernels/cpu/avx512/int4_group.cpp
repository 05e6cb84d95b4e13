#include "kernels/cpu/avx512/decoders/int4_group.h"
#include "kernels/cpu/avx512/fma_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_int4_group_kernel;
constinit const GemmKernel avx512_int4_group_kernel =
    avx512_decoded_kernel<Int4GroupDecoder>(Format::int4_group, "avx512/int4_group");

}  // namespace moesaic
