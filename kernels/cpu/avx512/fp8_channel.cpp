#include "kernels/cpu/avx512/decoders/fp8_channel.h"
#include "kernels/cpu/avx512/fma_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_fp8_channel_kernel;
constinit const GemmKernel avx512_fp8_channel_kernel =
    avx512_decoded_kernel<Fp8ChannelDecoder>(Format::fp8_channel, "avx512/fp8_channel");

}  // namespace moesaic
