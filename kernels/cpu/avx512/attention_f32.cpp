#include "kernels/cpu/avx512/lanes.h"

#include "kernels/cpu/attention_f32.h"

namespace moesaic {

extern const AttentionKernel avx512_attention_f32_kernel;
constinit const AttentionKernel avx512_attention_f32_kernel =
    make_f32_attention(Isa::avx512, "avx512/f32");

}  // namespace moesaic
