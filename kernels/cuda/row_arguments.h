#pragma once

#include <cstdint>

// What the host gives to the kernels of kernels/cuda/rows, which include this file too.

namespace moesaic::cuda {

/// Threads of a block, which has a row.
inline constexpr int kRowThreads = 128;

/// Row i of `to` becomes row rows[i] of `from`.
struct GatherArguments {
  const void* from;
  void* to;
  const std::int32_t* rows;  // [grid.x]
  std::int32_t row_words;    // of 16 bytes
  std::int32_t unused;
};

/// y[t] = sum of weights[t][c] * results[places[t][c]], by ascending c; places below 0 are none.
struct CombineArguments {
  const float* results;        // [any, hidden]
  const std::int32_t* places;  // [grid.x, topk]
  const float* weights;        // [grid.x, topk]
  float* y;                    // [grid.x, hidden]
  std::int32_t hidden;         // a multiple of 4
  std::int32_t topk;
};

}  // namespace moesaic::cuda
