#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/fp8_channel.h"
#include "kernels/cpu/avx512_bf16/dot_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_bf16_fp8_channel_kernel;
constinit const GemmKernel avx512_bf16_fp8_channel_kernel =
    avx512_bf16_decoded_kernel<Fp8ChannelDecoder>(Format::fp8_channel, "avx512_bf16/fp8_channel");

}  // namespace moesaic
