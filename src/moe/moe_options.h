#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace moesaic {

/// How the MoE layers of a model go about their choices; the same on all ranks.
struct MoeOptions {
  /// Choices of least weight of each token that a layer leaves to the sum of the next one, where
  /// both have experts. Approximate.
  std::int64_t defer = 0;
};

/// The ranks that share the experts of a model, and how they do it.
struct ExpertGroup {
  /// Implicit: ranks are enough for who wants nothing special.
  ExpertGroup(Communicator& group, const MoeOptions& wanted = {}) : ranks(group), options(wanted) {}

  Communicator& ranks;
  MoeOptions options;
};

}  // namespace moesaic
