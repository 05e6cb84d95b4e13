#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/attention.h"

namespace moesaic {

extern const AttentionKernel scalar_attention_f32_kernel;
constinit const AttentionKernel scalar_attention_f32_kernel =
    make_attention_kernel<float>(Isa::scalar, "scalar/f32");

}  // namespace moesaic
