#pragma once

#include <span>
#include <vector>

#include "src/lora/adapted_mlp.h"

namespace moesaic {

/// A weight in memory: one of the two, by its WeightForm; empty where the model has none.
struct Weight {
  PackedMatrix matrix{};
  std::span<const float> vector{};
  /// What is added to products with the matrix, or null; of a stacked matrix: a composite.
  const Adapter* adapter = nullptr;
  bool on_device = false;  ///< the matrix's panels are in the memory of the rank's GPU
};

/// The weights of one layer's mixer or feed-forward part, in the order in which its kind names them
/// (model_names.h), without the experts of other ranks.
using WeightSet = std::vector<Weight>;

/// Gate, up and down, which stand one after the other from `first` on; without biases. Throws
/// Error{internal} for an adapter of a part of a matrix.
[[nodiscard]] AdaptedMlp mlp_at(const WeightSet& weights, std::size_t first);

}  // namespace moesaic
