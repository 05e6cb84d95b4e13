#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "comm/pending_sums.h"
#include "src/lora/adapter_set.h"

namespace moesaic {

/// The ranks that train together.
struct TrainRanks {
  Communicator& world;     // all: each runs samples of its own
  Communicator& replicas;  // those that hold the same experts as this rank
};

/// Brings the gradients of a rank's adapters to those of all samples of all ranks. What every rank
/// holds is summed over all of them; what belongs to experts, whose rows come from all ranks of a
/// group anyway, over the replicas of these experts, unless none of them had a row for an expert.
/// Everything has the same bits on all ranks, and on any number of them. Sums of a layer go on
/// while the backward pass goes on with those before it.
class GradientReduction {
 public:
  /// `all`: the adapters of the whole model, in its order; `set` holds this rank's. All must
  /// outlive this. Collective.
  GradientReduction(const AdapterSet& set, std::span<const AdapterSpec> all,
                    const TrainRanks& ranks, ThreadPool& pool);

  /// Memory that sums under way take on a rank, of values that all ranks have and of those of its
  /// experts.
  struct Summed {
    std::int64_t common = 0;
    std::int64_t of_experts = 0;
  };
  [[nodiscard]] static std::int64_t most_bytes(int ranks, int replicas, const Summed& values);

  /// This rank's gradients of layer `layer`, and of those after it, are whole: their sums begin, in
  /// place. Collective: all ranks name the same layers, descending.
  void start(std::int64_t layer, AdapterGradients& gradients);
  /// Begins what has not begun, and returns when `gradients`, those of all calls since the last
  /// sum(), are those of the whole step: the module of the model's first adapter whose gradient is
  /// not finite, if there is one, on all ranks. Collective.
  [[nodiscard]] std::optional<std::string> sum(AdapterGradients& gradients);

  /// The Euclidean length of all adapters' gradients, once each, after sum(), in units of
  /// AdapterGradients. Collective.
  [[nodiscard]] double norm(const AdapterGradients& gradients) const;

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  using Values = std::vector<std::span<std::int64_t>>;
  /// Adapters of one layer, ascending.
  struct Layer {
    std::vector<std::int32_t> common;
    std::vector<std::int32_t> experts;
  };
  /// A layer's experts: which of them any replica had a row for.
  struct TouchedExperts {
    std::int64_t layer = 0;
    std::vector<std::int64_t> replicas;  // [adapters] so many had one
    std::int64_t sum = 0;                // its number
  };

  void start_layer(std::int64_t layer, AdapterGradients& gradients);
  void note_broken(std::int32_t adapter);
  void find_too_large(std::span<const std::int32_t> adapters, const AdapterGradients& gradients);
  void start_touched(std::int64_t layer, const AdapterGradients& gradients);
  void start_experts(AdapterGradients& gradients);
  [[nodiscard]] RowLabel label(std::int64_t layer) const;

  const AdapterSet& set_;
  std::span<const AdapterSpec> all_;
  TrainRanks ranks_;
  ThreadPool& pool_;
  std::vector<std::int64_t> places_;  // of this rank's adapters in all_
  bool counts_experts_ = false;       // the first of the replicas: experts count once
  std::vector<Layer> layers_;
  PendingSums world_sums_;
  PendingSums replica_sums_;

  // Of a step:
  std::int64_t begun_ = 0;  // the sums of this layer and of those after it have begun
  std::deque<TouchedExperts> touched_;
  // In all_, of this rank: with a sum that is not finite, or leaves no room for those of others.
  std::int64_t first_broken_ = kNone;
};

}  // namespace moesaic
