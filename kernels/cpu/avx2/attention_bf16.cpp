#include "kernels/cpu/avx2/lanes.h"

#include "kernels/cpu/avx2/blocks.h"
#include "kernels/cpu/block_products.h"

namespace moesaic {

extern const AttentionKernel avx2_attention_bf16_kernel;
constinit const AttentionKernel avx2_attention_bf16_kernel =
    make_bf16_attention<BlockProducts<FloatWeights, avx2_fma_blocks>>(Isa::avx2, "avx2/bf16");

}  // namespace moesaic
