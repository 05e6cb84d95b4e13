#pragma once

#include "kernels/cpu/block_loop.h"

namespace moesaic {

/// Register blocks of raw weights, for kernels that decode theirs.
extern const BlockTable avx2_fma_blocks;  // bf16 in the tile order; rows are floats

}  // namespace moesaic
