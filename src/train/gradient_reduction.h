#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
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
/// Everything has the same bits on all ranks, and on any number of them.
class GradientReduction {
 public:
  /// `all`: the adapters of the whole model, in its order; `set` holds this rank's. All must
  /// outlive this. Collective.
  GradientReduction(const AdapterSet& set, std::span<const AdapterSpec> all,
                    const TrainRanks& ranks);

  /// Sums in place; collective. Afterwards `gradients` are those of the whole step. Returns the
  /// module of an adapter whose gradient is not finite, if there is one, on all ranks.
  [[nodiscard]] std::optional<std::string> sum(AdapterGradients& gradients) const;

  /// The Euclidean length of all adapters' gradients, once each, after sum(), in units of
  /// AdapterGradients. Collective.
  [[nodiscard]] double norm(const AdapterGradients& gradients, ThreadPool& pool) const;

 private:
  [[nodiscard]] std::int64_t not_finite(const AdapterGradients& gradients) const;
  void sum_experts(AdapterGradients& gradients) const;

  const AdapterSet& set_;
  std::span<const AdapterSpec> all_;
  TrainRanks ranks_;
  std::vector<std::int64_t> places_;  // of this rank's adapters in all_
  bool counts_experts_ = false;       // the first of the replicas: experts count once
};

}  // namespace moesaic
