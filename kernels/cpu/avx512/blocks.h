#pragma once

#include "kernels/cpu/block_loop.h"

namespace moesaic {

/// Register blocks of raw weights, for kernels that decode theirs.
extern const BlockTable avx512_fma_blocks;   // bf16 in the tile order; rows are floats
extern const BlockTable avx512_bf16_blocks;  // VDPBF16PS; rows are bf16
extern const BlockTable avx512_byte_blocks;  // VPDPBUSD; rows are int8 + 128, sums int32

}  // namespace moesaic
