#include "src/parallel/expert_placement.h"

#include "base/error.h"

namespace moesaic {

ExpertPlacement::ExpertPlacement(std::int64_t num_experts, int num_ranks) {
  require(
      num_ranks >= 1 && num_ranks <= num_experts, ErrorKind::usage,
      "{} ranks cannot share {} experts: every rank needs at least one (start at most {} ranks, or "
      "use --expert-replicas)",
      num_ranks, num_experts, num_experts);
  for (int rank = 0; rank <= num_ranks; ++rank) starts_.push_back(num_experts * rank / num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks_.insert(ranks_.end(), static_cast<std::size_t>(num_local_experts(rank)), rank);
  }
}

}  // namespace moesaic
