#include "launch/sft/disk_demand.h"

#include <algorithm>
#include <vector>

#include "base/output_file.h"

namespace moesaic {
namespace {

/// Checkpoints that are asked for at most: each is an open file for a moment.
constexpr std::int64_t kMostAsked = 64;

}  // namespace

NewCheckpoints new_checkpoints(const DiskDemand& demand) noexcept {
  std::int64_t saves = demand.steps_done < demand.total_steps ? 1 : 0;  // the last one
  if (demand.save_every > 0 && saves > 0) {
    saves += (demand.total_steps - 1) / demand.save_every - demand.steps_done / demand.save_every;
  }
  const std::int64_t missing = std::max<std::int64_t>(demand.keep - demand.there, 0);
  return {.most = std::min(saves, missing + 1), .last = std::min(saves, missing)};
}

void require_room(const std::string& directory, const DiskDemand& demand) {
  const NewCheckpoints checkpoints = new_checkpoints(demand);
  const auto files = [&](std::int64_t count) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(std::min(count, kMostAsked)),
                                     demand.checkpoint_bytes);
  };
  require_room(directory, files(checkpoints.most), "checkpoints of the run");
  std::vector<std::int64_t> last = files(checkpoints.last);
  last.push_back(demand.adapter_bytes);
  require_room(directory, last, "checkpoints of the run, and the adapter");
}

}  // namespace moesaic
