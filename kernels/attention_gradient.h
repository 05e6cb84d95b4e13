#pragma once

#include <cstddef>
#include <cstdint>

namespace moesaic {

/// The gradient of attention for one query head and one whole sample: row i is the token at
/// position i and sees itself and, with a window, the `window` - 1 before it, else all before it.
struct AttentionGradientArgs {
  /// Rows of a matrix, `stride` elements apart.
  template <typename Element>
  struct Rows {
    Element* data = nullptr;
    std::int64_t stride = 0;

    [[nodiscard]] Element* row(std::int64_t index) const { return data + index * stride; }
  };

  std::int64_t num_rows = 0;
  std::int64_t window = 0;  // 0: a row sees all before it
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  float scale = 1;                     // multiplies the scores
  Rows<const float> queries;           // [num_rows, head_dim]
  Rows<const float> keys;              // [num_rows, head_dim]
  Rows<const float> values;            // [num_rows, value_dim]
  Rows<const float> results;           // [num_rows, value_dim] of the forward pass
  Rows<const float> result_gradients;  // [num_rows, value_dim]
  Rows<const float> log_sum_exps;      // [num_rows, 1] of the forward pass
  std::byte* scratch = nullptr;        // attention_gradient_scratch_bytes(), 64-byte aligned
  // All are overwritten.
  Rows<float> query_gradients;  // [num_rows, head_dim]
  Rows<float> key_gradients;    // [num_rows, head_dim] of this query head
  Rows<float> value_gradients;  // [num_rows, value_dim] of this query head
};

/// Bytes of AttentionGradientArgs::scratch; its contents mean nothing between calls.
[[nodiscard]] std::int64_t attention_gradient_scratch_bytes(std::int64_t num_rows,
                                                            std::int64_t head_dim,
                                                            std::int64_t value_dim) noexcept;

}  // namespace moesaic
