#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/attention.h"

namespace moesaic {

extern const AttentionKernel scalar_attention_bf16_kernel;
constinit const AttentionKernel scalar_attention_bf16_kernel =
    make_attention_kernel<BFloat16>(Isa::scalar, "scalar/bf16");

}  // namespace moesaic
