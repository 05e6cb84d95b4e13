#include "kernels/cpu/avx2/lanes.h"

#include "kernels/cpu/attention_f32.h"

namespace moesaic {

extern const AttentionKernel avx2_attention_f32_kernel;
constinit const AttentionKernel avx2_attention_f32_kernel =
    make_f32_attention(Isa::avx2, "avx2/f32");

}  // namespace moesaic
