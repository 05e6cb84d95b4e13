#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/matrix_view.h"

namespace moesaic {

/// What a rank's experts of one layer have to do. All of it stays until finish().
struct ExpertBatch {
  /// [outputs] the input row of each output, ordered by slot.
  std::span<const std::byte* const> rows;
  /// [local experts + 1] slot s has outputs [slot_begin[s], slot_begin[s + 1]).
  std::span<const std::int64_t> slot_begin;
  MatrixView<float> outputs;  // [outputs, hidden] to be written, not yet weighted
};

/// The experts of one layer that a rank owns, wherever they are computed. Two halves, so that
/// several kinds can share a batch: all are started, then all are finished.
class Experts {
 public:
  virtual ~Experts() = default;
  virtual void start(const ExpertBatch& batch) = 0;
  /// The outputs of the batch are written when this returns.
  virtual void finish() = 0;
};

}  // namespace moesaic
