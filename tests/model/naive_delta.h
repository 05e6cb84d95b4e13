#pragma once

#include <cstdint>
#include <vector>

#include "src/model/delta_kind.h"
#include "tests/model/naive_adapter.h"

namespace moesaic {

/// A gated delta net of whole samples by definition, in double precision.
struct NaiveDelta {
  DeltaConfig config;
  Doubles in{}, rates{}, out{};                              // matrices as DeltaKind has them
  Doubles convolution{}, decay_logs{}, step_bias{}, norm{};  // the same
  std::vector<NaiveAdapter> adapters{};

  /// [rows, hidden] of one sample.
  [[nodiscard]] Doubles forward(const Doubles& x) const;

 private:
  [[nodiscard]] Doubles project(const Doubles& x, DeltaWeight::Place place) const;
  /// Rows of a head [rows, width], convolved; queries and keys are units.
  [[nodiscard]] Doubles convolve(const Doubles& projected, const DeltaHead& head) const;
  [[nodiscard]] Doubles recur(const Doubles& projected, const Doubles& scalars,
                              std::int64_t value_head) const;
};

}  // namespace moesaic
