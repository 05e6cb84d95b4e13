#pragma once

#include <vector>

#include "base/device.h"
#include "launch/verbs/self_test.h"

namespace moesaic {

/// Every kernel for gated MLPs on small ones, in each format that GPUs have, against the scalar CPU
/// kernel: portable ones must give its bytes, those of tensor cores about the same numbers.
[[nodiscard]] std::vector<KernelTest> test_gpu_kernels(Device& device, double deadline_seconds);

}  // namespace moesaic
