#pragma once

#include "kernels/format.h"
#include "launch/runtime.h"

namespace moesaic {

/// What all ranks together reach at most: products from registers, and reads of memory.
struct Roofs {
  double flops_per_second = 0;
  double bytes_per_second = 0;
};

/// Measures both with all threads of all ranks at once: products as the kernels of `format` make
/// them, and reads of at least 1 GiB a node (less where memory is short). Takes about a second.
/// Collective.
[[nodiscard]] Roofs measure_roofs(const Runtime& runtime, Format format);

/// Seconds that `work` takes from when all ranks start it until all are done. Collective.
[[nodiscard]] double time_together(Communicator& world, const std::function<void()>& work);

}  // namespace moesaic
