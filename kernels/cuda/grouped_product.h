#pragma once

#include <cstdint>

#include "kernels/cuda/grouped_arguments.h"

// What libmoesaic_cutlass.so has (kernels/cuda/cutlass/nvfp4.cu), which the program loads while it
// runs (kernels/cuda/grouped_library.h): products of matrices in nvfp4 on chips of sm_100 and
// sm_103. CUTLASS and the CUDA runtime are in it alone.

namespace moesaic::cuda {

/// Of this file: the library has to be made from the same.
inline constexpr int kGroupedInterface = 1;

/// What it has code for: sm_100 and sm_103.
inline constexpr int kGroupedChips[] = {100, 103};

/// d = a b^T for each group, of exact products and scales, in f32: for each 64 k, ascending, one
/// fused sum goes on (docs/numerics.md). No order depends on which groups there are.
struct GroupedProduct {
  GroupLists lists;              // [num_groups] in the GPU's memory
  const void* layouts;           // there: what write_layouts made for at least as many groups
  void* workspace;               // there: of kGroupedWorkspaceBytes
  std::int32_t num_groups;       // some may have no rows
  std::int32_t outputs;          // rows of each b: a multiple of kGroupSizes, as is depth
  std::int32_t depth;            // of rows of a and b
  std::int32_t result_stride;    // elements from a row of d to the next
  std::int32_t device;           // which of the visible GPUs
  std::int32_t multiprocessors;  // of it
};

}  // namespace moesaic::cuda

/// Member, symbol and type of every function. None throws; a text is the reason of a failure,
/// which stays until the thread's next call, and null success.
#define MOESAIC_GROUPED_FUNCTIONS(X)                                                             \
  X(interface_version, "moesaic_cutlass_interface", int())                                       \
  /* "CUTLASS 4.2.0, CUDA 13.0" */                                                               \
  X(text, "moesaic_cutlass_text", const char*())                                                 \
  /* Of the memory that a launch works in. */                                                    \
  X(workspace_bytes, "moesaic_cutlass_workspace_bytes", std::int64_t(int multiprocessors))       \
  /* Of strides and layouts for so many groups, and these, to be copied to the GPU. */           \
  X(layout_bytes, "moesaic_cutlass_layout_bytes", std::int64_t(int num_groups))                  \
  X(write_layouts, "moesaic_cutlass_write_layouts",                                              \
    const char*(const moesaic::cuda::GroupedProduct*, void* out))                                \
  /* Where the scale of `row` and the 16 k from `k` on stands, as CUTLASS counts. */             \
  X(scale_place, "moesaic_cutlass_scale_place",                                                  \
    std::int64_t(const moesaic::cuda::GroupShape*, int row, int k))                              \
  /* Asks for it in the order of `stream`, a CUstream of the GPU's primary context, which is the \
     thread's current one. May be captured. */                                                   \
  X(launch, "moesaic_cutlass_launch",                                                            \
    const char*(const moesaic::cuda::GroupedProduct*, void* stream))
