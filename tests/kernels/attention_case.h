#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention_kernel.h"

namespace moesaic {

/// What a kernel gives.
struct AttentionResult {
  std::vector<float> out;           // [rows, value_dim]
  std::vector<float> log_sum_exps;  // [rows]
};
struct ExpectedAttention {
  std::vector<double> out;           // [rows, value_dim]
  std::vector<double> log_sum_exps;  // [rows]
};

/// Random queries, keys and values, with the key range of each row.
struct AttentionCase {
  std::int64_t head_dim;
  std::int64_t value_dim;
  std::int64_t num_keys;
  std::vector<std::int64_t> first_keys;  // [rows]
  std::vector<std::int64_t> end_keys;    // [rows]
  float query_scale = 1;
  /// What stands in the cache where no row may look.
  float hidden = std::numeric_limits<float>::quiet_NaN();
  std::int64_t poisoned_key = -1;  // this key and its value are NaN
  std::vector<float> sinks = {};   // [rows] or none

  [[nodiscard]] std::int64_t num_rows() const {
    return static_cast<std::int64_t>(first_keys.size());
  }
  // All values are bf16 values; each depends on its own place alone.
  [[nodiscard]] float query(std::int64_t row, std::int64_t d) const;
  [[nodiscard]] float key(std::int64_t key, std::int64_t d) const;
  [[nodiscard]] float value(std::int64_t key, std::int64_t d) const;
  [[nodiscard]] float scale() const;

  /// The blocks of the cache lie scattered, each before memory without access; out's rows lie
  /// apart with room that must stay untouched.
  [[nodiscard]] AttentionResult run(const AttentionKernel& kernel) const;
  /// The same, a call for each row.
  [[nodiscard]] AttentionResult run_row_by_row(const AttentionKernel& kernel) const;
  /// The same, each segment on its own, and merged.
  [[nodiscard]] AttentionResult run_by_segments(const AttentionKernel& kernel) const;
  /// By definition, in double precision; of queries in bf16 for that kind.
  [[nodiscard]] ExpectedAttention expected(AttentionKind kind) const;
  /// What docs/numerics.md says, step by step: the bits of every bf16 kernel. `dot`: VDPBF16PS
  /// instead of the tile order.
  [[nodiscard]] AttentionResult bf16_model(bool dot) const;
};

/// Every row sees all keys. value_dim is head_dim, here and below.
[[nodiscard]] AttentionCase full_case(std::int64_t head_dim, std::int64_t num_keys,
                                      std::int64_t num_rows);
/// A row for each token and head, tokens ascending; a token sees the last `window` keys up to its
/// own.
[[nodiscard]] AttentionCase causal_case(std::int64_t head_dim, std::int64_t num_tokens,
                                        std::int64_t num_heads, std::int64_t window);
/// Every row sees a random range.
[[nodiscard]] AttentionCase random_case(std::int64_t head_dim, std::int64_t num_keys,
                                        std::int64_t num_rows, unsigned seed);

}  // namespace moesaic
