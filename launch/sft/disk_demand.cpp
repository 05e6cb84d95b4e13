#include "launch/sft/disk_demand.h"

#include <algorithm>
#include <vector>

#include "base/output_file.h"
#include "base/rounding.h"

namespace moesaic {
namespace {

/// So many files of `bytes`, or fewer that are larger: each is open for a moment, and a run that
/// keeps all its checkpoints may write more than a process may open.
std::vector<std::int64_t> files_of(std::int64_t count, std::int64_t bytes) {
  constexpr std::int64_t kMostFiles = 64;
  const std::int64_t each = divide_up(count, kMostFiles);
  std::vector<std::int64_t> files;
  for (; count > 0; count -= each) files.push_back(std::min(count, each) * bytes);
  return files;
}

bool writes_gradients(const DiskDemand& demand) noexcept {
  return demand.gradients && demand.steps_done == 0 && demand.total_steps > 0;
}

}  // namespace

NewCheckpoints new_checkpoints(const DiskDemand& demand) noexcept {
  std::int64_t saves = demand.steps_done < demand.total_steps ? 1 : 0;  // the last one
  if (demand.save_every > 0 && saves > 0) {
    saves += (demand.total_steps - 1) / demand.save_every - demand.steps_done / demand.save_every;
  }
  const std::int64_t missing = std::max<std::int64_t>(demand.keep - demand.there, 0);
  return {.most = std::min(saves, missing + 1), .last = std::min(saves, missing)};
}

std::int64_t demanded_bytes(const DiskDemand& demand) noexcept {
  const NewCheckpoints checkpoints = new_checkpoints(demand);
  return std::max(checkpoints.most * demand.checkpoint_bytes,
                  checkpoints.last * demand.checkpoint_bytes + demand.adapter_bytes) +
         (writes_gradients(demand) ? demand.adapter_bytes : 0);
}

void require_room(const std::string& directory, const DiskDemand& demand) {
  const NewCheckpoints checkpoints = new_checkpoints(demand);
  std::optional<ReplacingFile> gradients;  // has its room while the others ask
  if (writes_gradients(demand)) {
    gradients.emplace(*demand.gradients);
    gradients->file().reserve(demand.adapter_bytes);
  }
  require_room(directory, files_of(checkpoints.most, demand.checkpoint_bytes),
               "checkpoints of the run");
  std::vector<std::int64_t> last = files_of(checkpoints.last, demand.checkpoint_bytes);
  last.push_back(demand.adapter_bytes);
  require_room(directory, last, "checkpoints of the run, and the adapter");
}

}  // namespace moesaic
