#pragma once

#include <cstdint>
#include <vector>

#include "src/model/gqa_kind.h"
#include "tests/model/naive_adapter.h"

namespace moesaic {

/// Grouped-query attention of whole samples by definition, in double precision.
struct NaiveGqa {
  GqaConfig config;
  Doubles qkv{}, o{};
  Doubles qkv_bias{}, o_bias{}, q_norm{}, k_norm{}, sinks{};  // may be empty
  std::vector<NaiveAdapter> adapters{};

  /// [rows, hidden] of one sample.
  [[nodiscard]] Doubles forward(const Doubles& x) const;

 private:
  [[nodiscard]] Doubles project(const Doubles& x, bool is_output) const;
  /// Takes the gates of projected rows out of them.
  [[nodiscard]] Doubles take_gates(Doubles& projected) const;
  void prepare(double* row, std::int64_t position) const;
  [[nodiscard]] Doubles attend(const Doubles& projected, std::int64_t row, std::int64_t head) const;
};

}  // namespace moesaic
