#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tests/gpu/device_case.h"

namespace moesaic {

/// The driver whose GPUs are executed in software (fake_driver.cpp).
[[nodiscard]] std::shared_ptr<const CudaDriver> fake_driver();

/// What kernels give on one of its GPUs: those of the program, or what stands in their place.
[[nodiscard]] std::vector<float> fake_results(const DeviceCase& mlps, DeviceKernels kernels,
                                              std::span<const DeviceImage> images);

/// The library of grouped products that is executed in software too (fake_cutlass.cpp).
[[nodiscard]] std::shared_ptr<const GroupedLibrary> fake_library();

}  // namespace moesaic
