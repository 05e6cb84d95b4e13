#pragma once

#include <cstdint>

#include "kernels/cuda/mlp_arguments.h"

// What the host gives to kernels/cuda/rows/plan.cu, which includes this file too.

namespace moesaic::cuda {

/// Threads of the one block; each has an input.
inline constexpr int kPlanThreads = 256;
inline constexpr int kMostPlannedInputs = kPlanThreads;
inline constexpr int kMostPlannedMlps = 512;
inline constexpr int kMostTileKinds = 3;

/// How rows of an MLP are cut into tiles: each kind has a list of its own.
struct TileKinds {
  std::int32_t count;
  std::int32_t rows[kMostTileKinds];  // of a tile, at most; ascending, the last a power of two
  std::int32_t most[kMostTileKinds];  // tiles of each list
};

struct PlanArguments {
  const std::int32_t* num_inputs;  // [1] how many of most_inputs there are
  const std::int32_t* experts;     // [most_inputs, topk] ids in the model; no input has one twice
  const std::int32_t* mlps_of_experts;  // [num_experts] an MLP of this GPU, or -1: it is elsewhere
  std::int32_t* row_indices;            // [rows] the input of each row
  std::int32_t* places;      // [most_inputs, topk] the row of each choice; -1: elsewhere, no input
  std::int32_t* first_rows;  // [num_mlps + 1]
  MlpTile* tiles;            // [most of each kind] of all kinds; of no rows beyond those there are
  std::int32_t num_experts;
  std::int32_t num_mlps;
  std::int32_t topk;
  std::int32_t most_inputs;
  TileKinds kinds;
  std::int32_t unused;
};

}  // namespace moesaic::cuda
