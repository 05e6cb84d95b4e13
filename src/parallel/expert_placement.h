#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace moesaic {

/// An expert's id in the model, 0 .. experts - 1, the same on every rank.
enum class ExpertId : std::int32_t {};
/// An expert's index among those that one rank owns.
enum class Slot : std::int32_t {};

/// Throws Error{usage} unless `ranks` can hold so many copies of all experts, each as many ranks.
void require_replicas(int ranks, int replicas);
/// The same, and that each of them has one expert at least.
void require_experts(std::int64_t num_experts, int ranks, int replicas = 1);

/// Which rank of an expert-parallel group owns which expert of a layer. A rank's slots are its
/// experts in ascending order.
class ExpertPlacement {
 public:
  /// Contiguous slices in rank order whose sizes differ by at most one. Throws Error{usage} if
  /// there are more ranks than experts.
  ExpertPlacement(std::int64_t num_experts, int num_ranks);
  /// `ranks` [experts]: the owner of each, 0 .. num_ranks - 1.
  ExpertPlacement(std::vector<int> ranks, int num_ranks);
  /// Dealt like cards: expert e to rank e modulo ranks. Throws as the first.
  [[nodiscard]] static ExpertPlacement round_robin(std::int64_t num_experts, int num_ranks);
  /// As many experts a rank as in contiguous slices; one after the other, those with most of `rows`
  /// [experts] first, each goes to the rank that has fewest rows so far, of those with room. Of
  /// equals the lower id comes first, expert or rank. Throws as the first.
  [[nodiscard]] static ExpertPlacement balanced(std::span<const double> rows, int num_ranks);

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

/// The placement of every layer of a model.
class ModelPlacement {
 public:
  /// The same in all layers.
  explicit ModelPlacement(ExpertPlacement all) : layers_{std::move(all)} {}
  /// At least one layer; all of as many ranks.
  explicit ModelPlacement(std::vector<ExpertPlacement> layers) : layers_(std::move(layers)) {}

  [[nodiscard]] const ExpertPlacement& of_layer(std::int64_t layer) const {
    return layers_[layers_.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] int num_ranks() const { return layers_.front().num_ranks(); }
  /// Of the layer in which `rank` has most.
  [[nodiscard]] std::int64_t most_experts(int rank) const;

 private:
  std::vector<ExpertPlacement> layers_;  // one: of all
};

/// The experts that a rank holds, of each layer.
class HeldExperts {
 public:
  /// All.
  HeldExperts() = default;
  HeldExperts(ModelPlacement placement, int rank) : placement_(std::move(placement)), rank_(rank) {}
  HeldExperts(ExpertPlacement of_all_layers, int rank)
      : HeldExperts(ModelPlacement(std::move(of_all_layers)), rank) {}

  [[nodiscard]] bool contains(std::int64_t layer, std::int64_t expert) const {
    return !placement_ || placement_->of_layer(layer).rank_of(
                              ExpertId{static_cast<std::int32_t>(expert)}) == rank_;
  }

 private:
  std::optional<ModelPlacement> placement_;
  int rank_ = 0;
};

}  // namespace moesaic
