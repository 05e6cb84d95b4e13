#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/cuda/mlp_products.h"
#include "launch/job/runtime.h"
#include "src/moe/device_experts.h"

namespace moesaic {

/// The GPU of this rank. The ranks of a node take its GPUs in turn.
struct RankDevice {
  std::unique_ptr<Device> device{};  // null: this rank has none
  std::string reason{};              // why
  int num_visible = 0;               // GPUs that the driver shows on this node
  int num_sharers = 1;               // ranks of this node that have this one
  bool is_first_sharer = true;       // of those
  DeviceKernels kernels = DeviceKernels::mma;
  std::shared_ptr<const GroupedLibrary> library{};  // of cutlass, where there is a device
  Nvfp4Activations nvfp4_activations = Nvfp4Activations::bf16;

  /// Bytes that --gpu-memory leaves this rank now.
  [[nodiscard]] std::int64_t available_bytes(const Options& options) const;
  /// "GPU 0 (NVIDIA H100, sm_90, mma)"; `more` comes behind the kernels.
  [[nodiscard]] std::string text(std::string_view more = "") const;
};

/// A GPU's UUID as it travels between ranks; empty: none.
using DeviceUuid = std::array<char, 64>;
[[nodiscard]] DeviceUuid travelling_uuid(std::string_view uuid) noexcept;

/// Which of a node's ranks have a GPU together: each may see GPUs of its own, under the same
/// numbers.
struct DeviceShare {
  int sharers = 0;
  bool is_first = false;  // whether this rank is the first of them
};
/// `uuid`: of this rank's, "" for none. Collective.
[[nodiscard]] DeviceShare share_device(const Runtime& runtime, std::string_view uuid);

/// GPUs of this machine that the driver would show, without starting it: `folder` has an entry for
/// each, and `visible`, a list of numbers and UUIDs, says which count, up to the first that is not
/// there; null: all. 0 without an NVIDIA driver.
[[nodiscard]] int count_gpus(const std::string& folder = "/proc/driver/nvidia/gpus",
                             const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"));

/// Opens it, with the library of --gpu-kernel cutlass. Collective. Throws AgreedError on all ranks
/// if none has one, with the option that wants it, if there is no such library, and where tensor
/// cores of different ranks would give different bits.
[[nodiscard]] RankDevice open_rank_device(const Runtime& runtime, std::string_view option);

/// Throws Error{usage} if tensor cores of `gpu`, which is there, are to multiply weights in this
/// layout by activations that they do not take.
void require_activations(const RankDevice& gpu, const Layout& weights);

/// For layers whose experts are on `gpu`, which is there and outlives it.
[[nodiscard]] std::unique_ptr<DeviceExpertsWorkspace> make_experts_workspace(const Runtime& runtime,
                                                                             const RankDevice& gpu);

}  // namespace moesaic
