#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_kernel.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/row_layout.h"

namespace moesaic {

/// A row's state: its sums of weight times value, in whole vectors, then the greatest score and the
/// sum of weights. A total of 0 says that the row has seen no key yet.
[[nodiscard]] constexpr std::int64_t padded_value_dim(std::int64_t value_dim) noexcept {
  return round_up(value_dim, 16);
}
[[nodiscard]] constexpr std::int64_t state_floats(std::int64_t value_dim) noexcept {
  return padded_value_dim(value_dim) + 16;
}

/// With bf16 the running softmax advances by strips of this many keys, counted from position 0:
/// sums of values go to memory and back once a strip.
inline constexpr std::int64_t kKeysPerStrip = 256;
/// Bytes from row to row of the scores of a strip.
inline constexpr std::size_t kScoreRowBytes = packed_row_stride(kKeysPerStrip * 4);
inline constexpr std::int64_t kScoreStride = kScoreRowBytes / 4;
/// Bytes a row of a strip's weights in bf16.
inline constexpr std::size_t kWeightRowBytes = packed_row_stride(kKeysPerStrip * 2);

/// What kRowsPerSegment rows over a bf16 cache need, with scores of kAttentionRows at a time;
/// offsets in bytes.
struct TileOrderScratch {
  constexpr TileOrderScratch(std::int64_t head_dim, std::int64_t value_dim)
      : queries(0),
        scores(queries + kRows * float_row_bytes(head_dim)),
        weights(scores + kAttentionRows * kScoreRowBytes),
        sums(weights + kAttentionRows * kWeightRowBytes),
        states(sums + kRows * static_cast<std::size_t>(state_floats(value_dim)) * 4),
        values(states + kRows * static_cast<std::size_t>(state_floats(value_dim)) * 4),
        floats(values + static_cast<std::size_t>(kKeysPerBlock * padded_value_dim(value_dim)) * 2),
        end(floats + kFloatBytes) {}

  [[nodiscard]] constexpr std::int64_t bytes() const { return static_cast<std::int64_t>(end); }

  static constexpr std::size_t kRows = kRowsPerSegment;
  std::size_t queries;
  std::size_t scores;
  std::size_t weights;
  std::size_t sums;    // of the segment under way, [kRows, state_floats]
  std::size_t states;  // of the segments before, [kRows, state_floats]
  std::size_t values;  // one block
  std::size_t floats;  // as Block has them
  std::size_t end;
};

/// The rows of a call from `first` on, at most `most` of them.
[[nodiscard]] inline AttentionArgs rows_of(const AttentionArgs& args, std::int64_t first,
                                           std::int64_t most = kAttentionRows) {
  AttentionArgs part = args;
  const std::int64_t left = args.num_rows - first;
  part.num_rows = left < most ? left : most;
  part.queries += first * args.query_stride;
  part.first_keys += first;
  part.end_keys += first;
  part.out += first * args.out_stride;
  if (args.sinks != nullptr) part.sinks += first;
  if (args.log_sum_exps != nullptr) part.log_sum_exps += first;
  if (args.states != nullptr) part.states += first * state_floats(args.value_dim);
  return part;
}

/// Positions [first, end).
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t end = 0;

  [[nodiscard]] constexpr bool empty() const { return first >= end; }
};
[[nodiscard]] constexpr KeyRange intersect(KeyRange a, KeyRange b) {
  return {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}
/// From the lowest key that a row of the call sees to the highest.
[[nodiscard]] inline KeyRange keys_of_all(const AttentionArgs& args) {
  KeyRange all{args.first_keys[0], args.end_keys[0]};
  for (std::int64_t row = 1; row < args.num_rows; ++row) {
    if (args.first_keys[row] < all.first) all.first = args.first_keys[row];
    if (args.end_keys[row] > all.end) all.end = args.end_keys[row];
  }
  return all;
}
/// The part of `range` in [origin, origin + count), counted from `origin`.
[[nodiscard]] constexpr KeyRange within(KeyRange range, std::int64_t origin, std::int64_t count) {
  return intersect({range.first - origin, range.end - origin}, {0, count});
}

}  // namespace moesaic
