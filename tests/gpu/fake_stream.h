#pragma once

#include <cstdint>
#include <functional>

#include "base/cuda_driver.h"

namespace moesaic {

// What the fake driver has for libraries that are fake too besides NVIDIA's functions.

/// Appends work to a stream, which is tried again and again, in order, until it returns true.
void fake_cuda_ask(CudaStream stream, const std::function<bool()>& work);
/// Appends a kernel of a library, also to what is captured.
void fake_cuda_launch(CudaStream stream, const std::function<void()>& work);
/// Takes back all that a stream was asked for.
void fake_cuda_give_up(CudaStream stream);
/// Inside such work alone; memory that is not there, or that nobody wrote, is an error of the work.
void fake_cuda_read(CudaAddress from, void* to, std::int64_t bytes);
void fake_cuda_write(CudaAddress to, const void* from, std::int64_t bytes);

}  // namespace moesaic
