#include "kernels/cuda/decoders/fp8_block.cuh"

#include "kernels/cuda/mma/mma_mlp.cuh"
