#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu_features.h"
#include "src/model/precision.h"
#include "tests/model/naive_gqa.h"
#include "tests/support/slopes.h"

namespace moesaic {

/// Attention of some samples; the loss is the sum of y times dy.
struct GqaProblem {
  NaiveGqa model;
  std::vector<std::int64_t> samples;  // tokens of each
  Doubles x, dy;                      // [rows, hidden]

  [[nodiscard]] std::int64_t rows() const;
  /// Of one sample.
  [[nodiscard]] GqaProblem sample(std::size_t index) const;
  /// [rows, hidden], by definition.
  [[nodiscard]] Doubles results() const;
  /// By the elements of `values`, which are part of this problem.
  [[nodiscard]] Doubles slopes(Doubles& values);
};

/// Numbers are exact in bf16, so that weights are the same in both precisions.
[[nodiscard]] GqaProblem make_gqa_problem(GqaConfig config, std::vector<std::int64_t> samples);

/// What a run is to be like.
struct GqaRun {
  Precision precision = Precision::f32;
  Isa isa = Isa::scalar;
  int threads = 1;
};

struct GqaResult {
  Floats y, y_kept, dx;
  std::vector<std::int64_t> sums;  // of AdapterGradients
  std::int64_t kept_bytes = 0;
};

/// Forwards, without and with what is kept, and back.
[[nodiscard]] GqaResult run_gqa(const GqaProblem& problem, const GqaRun& run);

}  // namespace moesaic
