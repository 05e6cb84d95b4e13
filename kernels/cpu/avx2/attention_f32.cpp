#include "kernels/cpu/avx2/lanes.h"

#include "kernels/cpu/attention.h"

namespace moesaic {

extern const AttentionKernel avx2_attention_f32_kernel;
constinit const AttentionKernel avx2_attention_f32_kernel =
    make_attention_kernel<float>(Isa::avx2, "avx2/f32");

}  // namespace moesaic
