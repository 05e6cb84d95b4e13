#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/fp8_channel.h"

#include "kernels/cpu/amx/decoded_kernel.h"

namespace moesaic {

extern const GemmKernel amx_fp8_channel_kernel;
constinit const GemmKernel amx_fp8_channel_kernel =
    amx_decoded_kernel<Fp8ChannelDecoder>(Format::fp8_channel, "amx/fp8_channel");

}  // namespace moesaic
