#pragma once

#include "launch/job/runtime.h"

namespace moesaic {

/// `moesaic bench kernels --device gpu`.
void run_bench_device(Runtime& runtime);

}  // namespace moesaic
