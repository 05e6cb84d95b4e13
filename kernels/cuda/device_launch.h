#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/error.h"
#include "kernels/cuda/row_arguments.h"

// How the arguments of kernels are made that have a block of threads a row.

namespace moesaic {

/// What a kernel takes an address for.
template <typename T>
T* pointer_to(CudaAddress address) {
  return reinterpret_cast<T*>(address);
}

/// Of rows, panels or groups.
inline Device::Launch a_block_each(std::int64_t count) {
  return {.grid_x = narrow<unsigned>(count), .threads = cuda::kRowThreads};
}

}  // namespace moesaic
