#pragma once

#include <string>
#include <vector>

#include "base/device.h"
#include "launch/job/rank_device.h"
#include "launch/job/runtime.h"
#include "launch/verbs/self_test.h"

namespace moesaic {

/// What doctor finds out about the GPUs that a rank sees.
struct GpuReport {
  std::string absent{};      // why there is none to use; empty: there are some
  std::string driver{};      // "13.0", what it can do at most
  std::string release{};     // "580.65.06", of the driver; empty: the system does not tell
  std::string toolkit{};     // "13.0.88", that kernels were built with; empty: there are no kernels
  std::vector<int> chips{};  // that kernels were built for
  std::vector<DeviceInfo> devices{};
  int own = 0;                         // which of them is this rank's
  std::vector<DeviceUuid> of_ranks{};  // whose each rank's is
  std::vector<KernelTest> kernels{};
  std::string nccl{};        // "NCCL 2.28.9 (/usr/lib/libnccl.so.2)", or why there is none
  std::string cutlass{};     // "CUTLASS 4.2.0, CUDA 13.0 (/opt/lib/libmoesaic_cutlass.so)"; empty:
  std::string no_cutlass{};  // why there is none
  std::string failure{};     // what the driver says is wrong with this rank's
  double upload_gbs = 0;     // copies of page-locked memory to this rank's, in 10^9 bytes a second
  double download_gbs = 0;
  double read_gbs = 0;  // of its own memory
};

/// Looks at the GPUs and runs every kernel on this rank's, which must give what the CPU does. Not
/// collective.
[[nodiscard]] GpuReport report_gpus(const Runtime& runtime);

/// Which ranks have which. Collective.
void find_owners(const Runtime& runtime, GpuReport& report);

/// Lines that end in \n.
[[nodiscard]] std::string gpu_text(const GpuReport& report, const Runtime& runtime);
/// A JSON object.
[[nodiscard]] std::string gpu_json(const GpuReport& report);

}  // namespace moesaic
