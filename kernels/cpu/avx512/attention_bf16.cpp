#include "kernels/cpu/avx512/lanes.h"

#include "kernels/cpu/attention.h"

namespace moesaic {

extern const AttentionKernel avx512_attention_bf16_kernel;
constinit const AttentionKernel avx512_attention_bf16_kernel =
    make_attention_kernel<BFloat16>(Isa::avx512, "avx512/bf16");

}  // namespace moesaic
