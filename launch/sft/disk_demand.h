#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moesaic {

/// What a run of `moesaic sft` has still to write into its directory, besides metrics.
struct DiskDemand {
  std::int64_t steps_done = 0;
  std::int64_t total_steps = 0;
  std::int64_t save_every = 0;  // steps; 0: at the end alone
  std::int64_t keep = 1;        // checkpoints that stay
  std::int64_t there = 0;       // those that are there already
  std::int64_t checkpoint_bytes = 0;
  std::int64_t adapter_bytes = 0;
  std::optional<std::string> gradients{};  // a file of the same size that the first step writes
};

/// Checkpoints that are there at once beyond those that are there already: the most while the run
/// saves, when a new one is whole before an old one goes, and of those that stay at the end.
struct NewCheckpoints {
  std::int64_t most = 0;
  std::int64_t last = 0;
};
[[nodiscard]] NewCheckpoints new_checkpoints(const DiskDemand& demand) noexcept;

/// Bytes of all this, when the most of it is there.
[[nodiscard]] std::int64_t demanded_bytes(const DiskDemand& demand) noexcept;

/// Throws Error{resource} naming `directory`, or the file of gradients, if the disk has no room for
/// that. For rank 0, before the first step.
void require_room(const std::string& directory, const DiskDemand& demand);

}  // namespace moesaic
