#include "kernels/cuda/decoders/mxfp4.cuh"

#include "kernels/cuda/mma/mma_mlp.cuh"
