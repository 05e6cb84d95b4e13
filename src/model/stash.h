#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "src/lora/part_backward.h"

namespace moesaic {

/// What a part of a layer keeps of one forward pass for its backward pass; each kind has its own.
/// Its owner may have any number of them, one for each pass that awaits its backward pass.
class Stash {
 public:
  virtual ~Stash() = default;
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
};

/// A forward pass through one part of a layer.
struct PartForward {
  MatrixView<const float> x;  // [rows, hidden] normed
  MatrixView<float> y;        // [rows, hidden] overwritten; of a FeedForward also null: only
                              // what is kept is wanted
  Stash* keep = nullptr;      // of the part's kind: gets what its backward pass needs
  std::size_t half = 0;       // which of two batches that run in turn
  /// Of a part with experts: choices of each token that it leaves to that of the next layer.
  std::int64_t defer = 0;
};

}  // namespace moesaic
