#include "kernels/cuda/decoders/bf16.cuh"

#include "kernels/cuda/mma/mma_mlp.cuh"
