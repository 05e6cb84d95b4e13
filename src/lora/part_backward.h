#pragma once

#include <span>

#include "base/matrix_view.h"
#include "src/lora/adapter_gradients.h"
#include "src/lora/sample_range.h"

namespace moesaic {

/// A backward pass through one part of a layer, or through one product.
struct PartBackward {
  MatrixView<const float> x;             // [rows, inputs] as in the forward pass
  MatrixView<const float> dy;            // [rows, outputs] the loss's gradient by y
  MatrixView<float> dx;                  // [rows, inputs] overwritten with that by x
  std::span<const SampleRange> samples;  // all rows, ascending
  AdapterGradients& adapters;            // those of adapters are added, sample by sample

  /// The pass through one product of this part.
  [[nodiscard]] PartBackward of_product(MatrixView<const float> its_x,
                                        MatrixView<const float> its_dy,
                                        MatrixView<float> its_dx) const {
    return {its_x, its_dy, its_dx, samples, adapters};
  }
};

}  // namespace moesaic
