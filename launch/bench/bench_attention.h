#pragma once

#include "launch/job/runtime.h"

namespace moesaic {

/// `bench kernels --op attention` and `attention-backward`: prints the table.
void run_bench_attention(Runtime& runtime);

}  // namespace moesaic
