#pragma once

#include <cstdint>
#include <vector>

#include "src/model/delta_kind.h"
#include "tests/model/naive_gqa.h"

namespace moesaic {

/// A low-rank addition to rows [first_row, first_row + rows) of one of the matrices.
struct NaiveDeltaAdapter {
  DeltaWeight::Place place = DeltaWeight::kIn;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t rank = 0;
  double scale = 0;
  Doubles a{};  // [rank, in]
  Doubles b{};  // [rows, rank]
};

/// A gated delta net of whole samples by definition, in double precision.
struct NaiveDelta {
  DeltaConfig config;
  Doubles in{}, rates{}, out{};                              // matrices as DeltaKind has them
  Doubles convolution{}, decay_logs{}, step_bias{}, norm{};  // the same
  std::vector<NaiveDeltaAdapter> adapters{};

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
