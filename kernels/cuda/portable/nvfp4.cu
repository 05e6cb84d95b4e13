#include "kernels/cuda/decoders/nvfp4.cuh"

#include "kernels/cuda/portable/portable_mlp.cuh"
