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

/// The first row that sees none of the keys up to `last_key`.
[[nodiscard]] inline std::int64_t end_of_rows(std::int64_t last_key,
                                              const AttentionGradientArgs& args) {
  const bool hides = args.window > 0 && last_key + args.window < args.num_rows;
  return hides ? last_key + args.window : args.num_rows;
}

/// What the gradient of one head in f32 needs; offsets in floats. Rows are in whole strips, a row's
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

/// With bf16, rows and keys meet by steps of 32, the depth of which products are made: so many in a
/// block of keys, and in a block of rows.
inline constexpr std::int64_t kGradientDepthSteps = kKeysPerBlock / kStepDepth;
static_assert(kGradientRows == kKeysPerBlock);

/// What the gradient of one head with bf16 needs; offsets in bytes. Rows and a row's elements are
/// in whole steps; packed rows have room for floats.
struct Bf16GradientScratch {
  Bf16GradientScratch(std::int64_t num_rows, std::int64_t head_dim, std::int64_t value_dim)
      : head_width(round_up(head_dim, kStepDepth)),
        value_width(round_up(value_dim, kStepDepth)),
        rows(round_up(num_rows, kStepDepth)),
        steps(rows / kStepDepth) {
    queries = add(rows * row_bytes(head_width));
    query_columns = add(head_width * row_bytes(rows));
    query_sums = add(rows * head_width * 4);
    gradients = add(rows * row_bytes(value_width));
    gradient_columns = add(value_width * row_bytes(rows));
    dots = add(round_up(rows, 16) * 4);
    chunk = add(kStepDepth * (head_width > value_width ? head_width : value_width) * 4);
    keys = add(kKeysPerBlock * head_width * 2);
    key_panels = add(kKeysPerBlock * head_width * 2);
    key_sums = add(kKeysPerBlock * head_width * 4);
    value_panels = add(kKeysPerBlock * value_width * 2);
    value_sums = add(kKeysPerBlock * value_width * 4);
    scores = add(kGradientRows * kKeysPerBlock * 4);
    products = add(kGradientRows * kKeysPerBlock * 4);
    score_gradients = add(kGradientRows * row_bytes(kKeysPerBlock));
    gradient_panels = add(kGradientRows * kKeysPerBlock * 2);
    weight_panels = add(kGradientRows * kKeysPerBlock * 2);
  }

  std::int64_t head_width;
  std::int64_t value_width;
  std::int64_t rows;
  std::int64_t steps;  // of rows
  // Of all rows:
  std::int64_t queries;           // packed [rows, head_width]
  std::int64_t query_columns;     // packed [head_width, rows]
  std::int64_t query_sums;        // f32 [rows, head_width]
  std::int64_t gradients;         // of results, packed [rows, value_width]
  std::int64_t gradient_columns;  // packed [value_width, rows]
  std::int64_t dots;              // f32 [rows]: gradient times result
  std::int64_t chunk;             // f32 [32, width]
  // Of a block of keys:
  std::int64_t keys;          // panels of elements, depth 64 keys
  std::int64_t key_panels;    // panels of keys, depth head_width
  std::int64_t key_sums;      // f32 [head_width, 64]
  std::int64_t value_panels;  // panels of keys, depth value_width
  std::int64_t value_sums;    // f32 [value_width, 64]
  // Of 64 rows and a block of keys:
  std::int64_t scores;           // f32 [64, 64]
  std::int64_t products;         // f32 [64, 64]: incoming gradient times value
  std::int64_t score_gradients;  // packed [64 rows, 64 keys]
  std::int64_t gradient_panels;  // the same as panels of keys, depth 64 rows
  std::int64_t weight_panels;    // panels of keys, depth 64 rows
  std::int64_t end = 0;

 private:
  static std::int64_t row_bytes(std::int64_t depth) {
    return static_cast<std::int64_t>(float_row_bytes(depth));
  }
  std::int64_t add(std::int64_t bytes) {
    const std::int64_t at = end;
    end += round_up(bytes, 64);
    return at;
  }
};

}  // namespace moesaic
