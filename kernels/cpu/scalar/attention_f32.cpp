#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/attention_f32.h"

namespace moesaic {

extern const AttentionKernel scalar_attention_f32_kernel;
constinit const AttentionKernel scalar_attention_f32_kernel =
    make_f32_attention(Isa::scalar, "scalar/f32");

}  // namespace moesaic
