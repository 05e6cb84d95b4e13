#include "kernels/cuda/decoders/fp8_block.cuh"

#include "kernels/cuda/portable/portable_mlp.cuh"
