#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "src/moe/combine.h"
#include "src/moe/wire_form.h"

namespace moesaic {

/// Whether a pass of many rows runs as two half-batches in turn, so that one computes while the
/// rows of the other travel. The bits are the same.
enum class HalfBatches { automatic, on, off };

/// How the MoE layers of a model go about their choices; the same on all ranks.
struct MoeOptions {
  /// Choices of least weight of each token that a layer leaves to the sum of the next one, where
  /// both have experts. Approximate.
  std::int64_t defer = 0;
  WireForm wire = WireForm::exact;
  Combine combine = Combine::ordered;
  /// Rows of experts that all take int8 travel as such. No bits change, and what it costs is paid
  /// back between nodes alone.
  bool int8_rows = false;
  HalfBatches half_batches = HalfBatches::off;

  /// Whether logits are what they are without options.
  [[nodiscard]] bool is_exact() const noexcept {
    return defer == 0 && wire == WireForm::exact && combine == Combine::ordered;
  }
};

struct DeviceExpertsWorkspace;

/// The ranks that share the experts of a model, and how they do it.
struct ExpertGroup {
  /// Implicit: ranks are enough for who wants nothing special.
  ExpertGroup(Communicator& group, const MoeOptions& wanted = {}) : ranks(group), options(wanted) {}

  Communicator& ranks;
  MoeOptions options;
  DeviceExpertsWorkspace* device = nullptr;  ///< where this rank has experts on a GPU
};

}  // namespace moesaic
