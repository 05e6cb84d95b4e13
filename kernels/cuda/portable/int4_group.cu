#include "kernels/cuda/decoders/int4_group.cuh"

#include "kernels/cuda/portable/portable_mlp.cuh"
