#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_blocks.h"
#include "kernels/attention_gradient.h"
#include "kernels/cpu/attention_layout.h"

namespace moesaic {

/// Rows and keys meet by strips of this many: a strip of rows meets those strips of keys of which
/// one of its rows sees one. So what is skipped is the same on every instruction set.
inline constexpr std::int64_t kGradientStrip = 16;
/// Rows that meet a block of keys together.
inline constexpr std::int64_t kGradientRows = 64;

/// The keys that row `row` of a sample sees.
[[nodiscard]] constexpr KeyRange seen_keys(std::int64_t row, std::int64_t window) {
  return {window > 0 && row >= window ? row + 1 - window : 0, row + 1};
}

/// What the gradient of one head needs; offsets in floats. Rows are in whole strips, a row's
/// elements in whole vectors ("padded"), panels are [strips][dim][16].
struct GradientScratch {
  constexpr GradientScratch(std::int64_t num_rows, std::int64_t head_dim, std::int64_t value_dim)
      : head_width(round_up(head_dim, kGradientStrip)),
        value_width(round_up(value_dim, kGradientStrip)),
        rows(round_up(num_rows, kGradientStrip)),
        queries(0),
        query_panels(queries + rows * head_width),
        query_sums(query_panels + rows * head_width),
        gradients(query_sums + rows * head_width),
        gradient_panels(gradients + rows * value_width),
        dots(gradient_panels + rows * value_width),
        keys(dots + rows),
        key_panels(keys + kKeysPerBlock * head_width),
        key_sums(key_panels + kKeysPerBlock * head_width),
        values(key_sums + kKeysPerBlock * head_width),
        value_panels(values + kKeysPerBlock * value_width),
        value_sums(value_panels + kKeysPerBlock * value_width),
        weights(value_sums + kKeysPerBlock * value_width),
        score_gradients(weights + kGradientRows * kKeysPerBlock),
        end(score_gradients + kGradientRows * kKeysPerBlock) {}

  std::int64_t head_width;
  std::int64_t value_width;
  std::int64_t rows;
  // Of all rows:
  std::int64_t queries;  // [rows, head_width]
  std::int64_t query_panels;
  std::int64_t query_sums;  // [rows, head_width]
  std::int64_t gradients;   // of results, [rows, value_width]
  std::int64_t gradient_panels;
  std::int64_t dots;  // [rows]: gradient times result
  // Of a block of keys:
  std::int64_t keys;  // [64, head_width]
  std::int64_t key_panels;
  std::int64_t key_sums;  // [64, head_width]
  std::int64_t values;    // [64, value_width]
  std::int64_t value_panels;
  std::int64_t value_sums;  // [64, value_width]
  // Of 64 rows and a block of keys, [64, 64]:
  std::int64_t weights;
  std::int64_t score_gradients;
  std::int64_t end;
};

}  // namespace moesaic
