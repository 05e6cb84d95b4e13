#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moesaic {

/// An expert's id in the model, 0 .. experts - 1, the same on every rank.
enum class ExpertId : std::int32_t {};
/// An expert's index among those that one rank owns.
enum class Slot : std::int32_t {};

/// Which rank of an expert-parallel group owns which expert of a layer. A rank's slots are its
/// experts in ascending order.
class ExpertPlacement {
 public:
  /// Contiguous slices in rank order whose sizes differ by at most one. Throws Error{usage} if
  /// there are more ranks than experts.
  ExpertPlacement(std::int64_t num_experts, int num_ranks);
  /// `ranks` [experts]: the owner of each, 0 .. num_ranks - 1.
  ExpertPlacement(std::vector<int> ranks, int num_ranks);

  [[nodiscard]] std::int64_t num_experts() const noexcept { return std::ssize(ranks_); }
  [[nodiscard]] int num_ranks() const noexcept { return static_cast<int>(experts_.size()); }
  /// [slots] ascending.
  [[nodiscard]] std::span<const ExpertId> experts_of(int rank) const {
    return experts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t num_local_experts(int rank) const {
    return std::ssize(experts_of(rank));
  }
  /// The first expert of `rank`, of contiguous slices.
  [[nodiscard]] std::int64_t experts_start_idx(int rank) const {
    return static_cast<std::int64_t>(experts_of(rank).front());
  }
  [[nodiscard]] int rank_of(ExpertId expert) const {
    return ranks_[static_cast<std::size_t>(expert)];
  }
  [[nodiscard]] Slot slot_of(ExpertId expert) const {
    return slots_[static_cast<std::size_t>(expert)];
  }

 private:
  std::vector<int> ranks_;                      // [experts]
  std::vector<Slot> slots_;                     // [experts]
  std::vector<std::vector<ExpertId>> experts_;  // [ranks][slots]
};

}  // namespace moesaic
