#include "kernels/cpu/avx2/lanes.h"

#include "kernels/cpu/attention.h"

namespace moesaic {

extern const AttentionKernel avx2_attention_bf16_kernel;
constinit const AttentionKernel avx2_attention_bf16_kernel =
    make_attention_kernel<BFloat16>(Isa::avx2, "avx2/bf16");

}  // namespace moesaic
