#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "comm/nccl_library.h"

namespace moesaic {

/// What kernels gave, and what they had to.
struct RowCheck {
  std::string kernels{};  // "rows/gather"
  std::string what{};
  std::vector<float> got{};
  std::vector<float> wanted{};
  std::int64_t columns = 1;
  std::function<std::string(std::int64_t)> input{};  // of a row, as JSON; empty: `what` says all
};

/// The kernels of kernels/cuda/rows.
[[nodiscard]] std::vector<RowCheck> check_rows(Device& device);

/// Rows from each GPU that the driver shows to each other by NCCL, each GPU that of a rank, which
/// is a thread. Of one GPU that it can be alone.
[[nodiscard]] RowCheck check_nccl(const std::shared_ptr<const CudaDriver>& driver,
                                  const std::shared_ptr<const NcclLibrary>& library);

}  // namespace moesaic
