#pragma once

#include <cstdint>
#include <vector>

namespace moesaic {

/// An expert's id in the model, 0 .. experts - 1, the same on every rank.
enum class ExpertId : std::int32_t {};
/// An expert's index among those that one rank owns.
enum class Slot : std::int32_t {};

/// Which rank of an expert-parallel group owns which expert: contiguous slices in rank order whose
/// sizes differ by at most one.
class ExpertPlacement {
 public:
  /// Throws Error{usage} if there are more ranks than experts.
  ExpertPlacement(std::int64_t num_experts, int num_ranks);

  [[nodiscard]] std::int64_t num_experts() const noexcept { return starts_.back(); }
  [[nodiscard]] int num_ranks() const noexcept { return static_cast<int>(starts_.size()) - 1; }
  /// The first expert of `rank`: local slot s there is global expert experts_start_idx(rank) + s.
  [[nodiscard]] std::int64_t experts_start_idx(int rank) const {
    return starts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t num_local_experts(int rank) const {
    return starts_[static_cast<std::size_t>(rank) + 1] - experts_start_idx(rank);
  }
  [[nodiscard]] int rank_of(ExpertId expert) const {
    return ranks_[static_cast<std::size_t>(expert)];
  }
  [[nodiscard]] Slot slot_of(ExpertId expert) const {
    return Slot{static_cast<std::int32_t>(static_cast<std::int64_t>(expert) -
                                          experts_start_idx(rank_of(expert)))};
  }

 private:
  std::vector<std::int64_t> starts_;  // [ranks + 1]
  std::vector<int> ranks_;            // [experts]
};

}  // namespace moesaic
