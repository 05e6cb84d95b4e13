#include "kernels/cuda/decoders/bf16.cuh"

#include "kernels/cuda/portable/portable_mlp.cuh"
