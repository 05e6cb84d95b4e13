#pragma once

#include <cstdint>

#include "base/device.h"
#include "kernels/cuda/grouped_arguments.h"

namespace moesaic {

/// Memory of the library that multiplies groups, for any GPU.
inline constexpr std::int64_t kGroupedWorkspaceBytes = std::int64_t{4} << 20;

/// How large a pass through grouped products may become.
struct GroupedRoom {
  std::int64_t rows = 0;
  std::int64_t mlps = 0;
  std::int64_t hidden = 0;  // a multiple of cuda::kGroupSizes, as is width
  std::int64_t width = 0;

  /// Groups with rows: one an MLP, and one more for each that is full.
  [[nodiscard]] std::int64_t groups() const noexcept;
  /// Of the GPU's memory, besides rows, results and gated activations.
  [[nodiscard]] std::int64_t bytes() const noexcept;
};

/// That memory, part by part.
struct GroupedMemory {
  GroupedMemory(const GroupedRoom& room, CudaAddress memory) noexcept;

  cuda::GroupedRows rows{};
  cuda::RowPlace* places = nullptr;  // [rows]
  float* sums = nullptr;             // [rows, 2, width]
  cuda::GroupLists gate_up{};        // [2 * groups]
  cuda::GroupLists down{};           // [groups]
  void* workspace = nullptr;         // [kGroupedWorkspaceBytes]
  CudaAddress end = 0;
};

}  // namespace moesaic
