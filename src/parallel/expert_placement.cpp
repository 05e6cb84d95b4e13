#include "src/parallel/expert_placement.h"

#include <algorithm>
#include <numeric>

#include "base/counted.h"
#include "base/error.h"

namespace moesaic {
namespace {

/// The first expert of a rank's contiguous slice.
std::int64_t slice_start(std::int64_t num_experts, int num_ranks, int rank) {
  return num_experts * rank / num_ranks;
}

/// [experts] owners.
std::vector<int> contiguous_slices(std::int64_t num_experts, int num_ranks) {
  require_experts(num_experts, num_ranks);
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.resize(static_cast<std::size_t>(slice_start(num_experts, num_ranks, rank + 1)), rank);
  }
  return ranks;
}

}  // namespace

void require_replicas(int ranks, int replicas) {
  require(replicas >= 1 && ranks % replicas == 0, ErrorKind::usage,
          "--expert-replicas {} does not divide the {}", replicas, counted(ranks, "rank"));
}

void require_experts(std::int64_t num_experts, int ranks, int replicas) {
  require_replicas(ranks, replicas);
  require(ranks >= 1 && ranks <= num_experts * replicas, ErrorKind::usage,
          "{} ranks cannot share {} experts: take at most {} ranks, or more --expert-replicas",
          ranks, num_experts, num_experts * replicas);
}

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

ExpertPlacement ExpertPlacement::round_robin(std::int64_t num_experts, int num_ranks) {
  require_experts(num_experts, num_ranks);
  std::vector<int> ranks;
  for (std::int64_t expert = 0; expert < num_experts; ++expert) {
    ranks.push_back(static_cast<int>(expert % num_ranks));
  }
  return {std::move(ranks), num_ranks};
}

ExpertPlacement ExpertPlacement::balanced(std::span<const double> rows, int num_ranks) {
  const std::int64_t num_experts = std::ssize(rows);
  require_experts(num_experts, num_ranks);
  struct Share {
    double rows = 0;
    std::int64_t room = 0;
  };
  std::vector<Share> shares;
  for (int rank = 0; rank < num_ranks; ++rank) {
    shares.push_back({.room = slice_start(num_experts, num_ranks, rank + 1) -
                              slice_start(num_experts, num_ranks, rank)});
  }
  std::vector<std::size_t> heaviest_first(rows.size());
  std::iota(heaviest_first.begin(), heaviest_first.end(), std::size_t{0});
  std::ranges::stable_sort(heaviest_first, std::greater(),
                           [&](std::size_t expert) { return rows[expert]; });
  std::vector<int> ranks(rows.size());
  for (const std::size_t expert : heaviest_first) {
    const auto share = std::ranges::min_element(shares, [](const Share& a, const Share& b) {
      return a.room > 0 && (b.room == 0 || a.rows < b.rows);
    });
    share->rows += rows[expert];
    --share->room;
    ranks[expert] = static_cast<int>(share - shares.begin());
  }
  return {std::move(ranks), num_ranks};
}

std::int64_t ModelPlacement::most_experts(int rank) const {
  std::int64_t most = 0;
  for (const ExpertPlacement& layer : layers_) most = std::max(most, layer.num_local_experts(rank));
  return most;
}

}  // namespace moesaic
