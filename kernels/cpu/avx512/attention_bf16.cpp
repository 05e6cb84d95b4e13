#include "kernels/cpu/avx512/lanes.h"

#include "kernels/cpu/avx512/blocks.h"
#include "kernels/cpu/block_products.h"

namespace moesaic {

extern const AttentionKernel avx512_attention_bf16_kernel;
constinit const AttentionKernel avx512_attention_bf16_kernel =
    make_bf16_attention<BlockProducts<FloatWeights, avx512_fma_blocks>>(Isa::avx512, "avx512/bf16");

}  // namespace moesaic
