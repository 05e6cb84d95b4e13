#include "kernels/cuda/decoders/mxfp4.cuh"

#include "kernels/cuda/portable/portable_mlp.cuh"
