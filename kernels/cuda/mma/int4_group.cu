#include "kernels/cuda/decoders/int4_group.cuh"

#include "kernels/cuda/mma/mma_mlp.cuh"
