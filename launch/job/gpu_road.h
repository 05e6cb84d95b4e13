#pragma once

#include <memory>
#include <string>

#include "comm/nccl_ranks.h"
#include "launch/job/rank_device.h"
#include "src/moe/device_road.h"

namespace moesaic {

/// Loads what --nccl says. Null, with the reason, as NcclLibrary::load().
[[nodiscard]] std::shared_ptr<const NcclLibrary> load_nccl(const Options& options,
                                                           std::string& reason);

/// What of the options needs rows in the memory of hosts; empty: nothing does.
[[nodiscard]] std::string hindering_option(const Options& options);

/// Throws Error{usage} for --transport nccl where the verb has no experts on GPUs.
void require_experts_for_nccl(const Command& command);

/// Tells who asks for --transport nccl that no experts are on GPUs.
void tell_unused_nccl(const Runtime& runtime);

/// The road of batches that stay on GPUs, where there is one: either one rank has all experts, and
/// those that a batch chose are on its GPU; or all experts of the ranks that share them are on GPUs
/// and --transport nccl connects them, one GPU a rank.
class GpuRoad {
 public:
  struct Rank {
    const RankDevice& gpu;
    bool has_all = false;                    // all of this rank's experts are on its GPU
    DeviceExpertsWorkspace* work = nullptr;  // null: it has none there
  };
  /// Tells why there is none if --transport nccl asks for one. Collective. The rank's parts must
  /// outlive this.
  GpuRoad(const Runtime& runtime, const Rank& rank);

  /// Null: rows go through the memory of hosts. The same on all ranks that share experts.
  [[nodiscard]] DeviceRoad* get() const noexcept { return road_.get(); }

 private:
  void connect(const Runtime& runtime, const Rank& rank);

  std::shared_ptr<const NcclLibrary> library_;
  std::unique_ptr<DeviceRoad> road_;
  std::unique_ptr<NcclRanks> ranks_;  // goes before the memory that it works on
};

}  // namespace moesaic
