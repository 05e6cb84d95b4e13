#include "src/parallel/expert_placement.h"

#include "base/error.h"

namespace moesaic {
namespace {

/// [experts] owners.
std::vector<int> contiguous_slices(std::int64_t num_experts, int num_ranks) {
  require(
      num_ranks >= 1 && num_ranks <= num_experts, ErrorKind::usage,
      "{} ranks cannot share {} experts: every rank needs at least one (start at most {} ranks, or "
      "use --expert-replicas)",
      num_ranks, num_experts, num_experts);
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.resize(static_cast<std::size_t>(num_experts * (rank + 1) / num_ranks), rank);
  }
  return ranks;
}

}  // namespace

ExpertPlacement::ExpertPlacement(std::int64_t num_experts, int num_ranks)
    : ExpertPlacement(contiguous_slices(num_experts, num_ranks), num_ranks) {}

ExpertPlacement::ExpertPlacement(std::vector<int> ranks, int num_ranks)
    : ranks_(std::move(ranks)), experts_(static_cast<std::size_t>(num_ranks)) {
  for (std::size_t expert = 0; expert < ranks_.size(); ++expert) {
    std::vector<ExpertId>& own = experts_[static_cast<std::size_t>(ranks_[expert])];
    slots_.push_back(Slot{static_cast<std::int32_t>(own.size())});
    own.push_back(ExpertId{static_cast<std::int32_t>(expert)});
  }
}

}  // namespace moesaic
