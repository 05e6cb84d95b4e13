#include "kernels/cuda/decoders/nvfp4.cuh"

#include "kernels/cuda/mma/mma_mlp.cuh"
