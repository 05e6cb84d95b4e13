#pragma once

#include <optional>

#include "base/device.h"
#include "launch/job/runtime.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

/// In 10^9 bytes a second.
struct CopyRates {
  double read_gbs = 0;    // of the GPU's memory by itself
  double upload_gbs = 0;  // copies of page-locked memory
  double download_gbs = 0;
};
/// Throws Error{resource} if not every byte comes back.
[[nodiscard]] CopyRates measure_copies(Device& device, double deadline_seconds);

/// What the ranks' GPUs do at most, all at work at the same time: of each figure the slowest one's.
/// Nothing where no rank has one that this program has kernels for. All ranks get the same.
/// Collective. Throws AgreedError on all ranks for what a driver says is wrong.
[[nodiscard]] std::optional<GpuRates> measure_gpus(const Runtime& runtime);

}  // namespace moesaic
