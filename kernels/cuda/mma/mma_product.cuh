#pragma once

#include "kernels/cuda/device_operations.cuh"
#include "kernels/cuda/mlp_arguments.h"

// Products on tensor cores (mma.sync, sm_80 and later). Weights become bf16 in registers and are
// the 16 rows of an mma, 8 rows of x its columns; a step has 32 k. Lane 4 g + t has columns 2 g and
// 2 g + 1 of a panel and k = 8 t to 8 t + 7 of a step, which are slots 2 t, 2 t + 1, 2 t + 8 and
// 2 t + 9 of two mma one after the other. So of nvfp4 and mxfp4 a lane reads 8 neighbouring
// bytes of codes, a warp 256, and of a row of x 16 bytes.
//
// Steps belong to kMmaSums sums (docs/numerics.md), whatever the batch is: with up to 8 rows four
// warps share two panels and have a sum each, with more a warp has all steps of its panels and adds
// a sum to those before when its last step is done. Weights are read Decoder::kAhead steps before
// they are needed, or kAheadOfMany with 64 rows a warp.
//
// A decoder comes before this.

namespace moesaic::cuda {

/// Sums of a lane: [blocks of 8 rows][its columns 2 g, 2 g, 2 g + 1, 2 g + 1 of rows 2 t, 2 t + 1].
template <int Blocks>
struct LaneSums {
  float of[Blocks][4] = {};
};

struct Lane {
  int g = static_cast<int>(threadIdx.x) % 32 / 4;
  int t = static_cast<int>(threadIdx.x) % 4;
};

/// A product, and the rows of its input: row i of a tile is row index_of(i) of `x`.
template <typename IndexOf>
struct Product {
  const std::uint16_t* x;
  const IndexOf& index_of;
  int num_rows;
  int depth;
  PanelForm form;

  __device__ __forceinline__ int steps() const { return (depth + 31) / 32; }
  /// Whole stages.
  __device__ __forceinline__ int steps_of_sum() const {
    return (steps() + 2 * kMmaSums - 1) / (2 * kMmaSums) * 2;
  }
  /// Of the lane.
  __device__ __forceinline__ Decoder panel(const std::uint8_t* panels, int index) const {
    const Lane lane;
    return {panels + index * Decoder::panel_bytes(steps(), form), steps(), form, lane.t,
            2 * lane.g};
  }
  __device__ __forceinline__ const std::uint16_t* row(int index) const {
    return x + index_of(index) * depth;
  }
};

/// Weights of a step as the first operand of its two mma.
struct StepWeights {
  std::uint32_t first[4];
  std::uint32_t second[4];

  __device__ __forceinline__ StepWeights(const Decoder& panel, const Decoder::Codes<2>& codes) {
    std::uint32_t pairs[2][4];
    panel.unpack<2>(codes, pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      first[i] = pairs[i % 2][i / 2];
      second[i] = pairs[i % 2][2 + i / 2];
    }
  }
};

/// A step of two panels and some blocks of rows: all first mma, then all second, since those of a
/// sum wait for each other.
template <int Blocks>
__device__ __forceinline__ void multiply_step(const StepWeights (&weights)[2],
                                              const uint4 (&x)[Blocks],
                                              float (*const (&sums)[2])[4]) {
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      mma_bf16(sums[m][block], weights[m].first, x[block].x, x[block].y);
    }
  }
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      mma_bf16(sums[m][block], weights[m].second, x[block].z, x[block].w);
    }
  }
}

/// Up to 8 rows: four warps share two panels, and warp w has sum w of each. store(row, column of a
/// panel, the sum of either) is called for the rows that there are.
template <typename IndexOf, typename Store>
__device__ __forceinline__ void multiply_few(const Product<IndexOf>& product, Decoder (&panels)[2],
                                             const Store& store) {
  constexpr int kAhead = Decoder::kAhead;
  __shared__ float joined[2][kMmaSums][8][16];
  const Lane lane;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int begin = warp * product.steps_of_sum();
  const int end = min(product.steps(), begin + product.steps_of_sum());
  // The last step of all may end before the lane's k.
  const bool has_last = product.steps() * 32 - 32 + lane.t * 8 < product.depth;
  const int end_of_x = has_last ? end : min(end, product.steps() - 1);
  const std::uint16_t* x_ahead =
      product.row(lane.g < product.num_rows ? lane.g : 0) + begin * 32 + lane.t * 8;
  Decoder::Codes<2> codes[kAhead][2];
  uint4 x[kAhead];
  LaneSums<1> sums[2];
  const auto load_codes = [&](int i, int step) {
    if (step >= end) return;
    codes[i][0] = panels[0].load<2>(i);
    codes[i][1] = panels[1].load<2>(i);
  };
  const auto load_x = [&](int i, int step) {
    if (step < end_of_x) {
      x[i] = *reinterpret_cast<const uint4*>(x_ahead + i * 32);
    } else {
      x[i] = uint4{0, 0, 0, 0};
    }
  };
  const auto advance = [&](int steps) {
    panels[0].advance(steps);
    panels[1].advance(steps);
  };
  advance(begin);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    load_x(i, begin + i);
    load_codes(i, begin + i);
  }
  for (int first = begin; first < end; first += kAhead) {
    advance(kAhead);
    x_ahead += kAhead * 32;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= end) break;
      const StepWeights weights[2] = {{panels[0], codes[i][0]}, {panels[1], codes[i][1]}};
      load_codes(i, first + i + kAhead);
      multiply_step<1>(weights, {x[i]}, {sums[0].of, sums[1].of});
      load_x(i, first + i + kAhead);
    }
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      joined[m][warp][2 * lane.t + i % 2][2 * lane.g + i / 2] = sums[m].of[0][i];
    }
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / 16;
  const int column = static_cast<int>(threadIdx.x) % 16;
  if (row >= product.num_rows) return;
  float results[2] = {};
#pragma unroll
  for (int i = 0; i < kMmaSums; ++i) {
    results[0] = __fadd_rn(results[0], joined[0][i][row][column]);
    results[1] = __fadd_rn(results[1], joined[1][i][row][column]);
  }
  store(row, column, results[0], results[1]);
}

inline constexpr int kStages = 3;       // of rows, in shared memory
inline constexpr int kStageDepth = 64;  // two steps

/// The rows of a tile in shared memory, kStageDepth at a time. Of odd rows halves are exchanged, so
/// that eight lanes, two rows, read from all banks.
template <int Rows, int Threads>
struct StagedRows {
  static constexpr int kPieces = kStageDepth / 8;  // of a row, of 16 bytes
  static constexpr int kTurns = Rows * kPieces / Threads;
  static_assert(kTurns * Threads == Rows * kPieces && Threads % kPieces == 0);
  uint4 pieces[kStages][Rows][kPieces];

  /// The rows of which a thread copies a piece; those that there are not are the first one: nobody
  /// takes their results.
  struct Own {
    const std::uint16_t* rows[kTurns];

    template <typename IndexOf>
    __device__ __forceinline__ explicit Own(const Product<IndexOf>& product) {
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int row = row_of(turn);
        rows[turn] = product.row(row < product.num_rows ? row : 0);
      }
    }
  };
  __device__ __forceinline__ static int row_of(int turn) {
    return turn * (Threads / kPieces) + static_cast<int>(threadIdx.x) / kPieces;
  }

  __device__ __forceinline__ void load(const Own& own, int depth, int stage, int slot) {
    const int piece = static_cast<int>(threadIdx.x) % kPieces;
    const int k = stage * kStageDepth + piece * 8;
    if (stage * kStageDepth < depth) {
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int row = row_of(turn);
        copy_16_async(&pieces[slot][row][piece ^ (row % 2 * 4)], own.rows[turn] + k, k < depth);
      }
    }
    commit_copies();
  }
  /// Of a lane: 8 k of a step, one of the two in `slot`, of row `block` * 8 + g.
  __device__ __forceinline__ uint4 at(int slot, int step, int block, const Lane& lane) const {
    return pieces[slot][block * 8 + lane.g][(step * 4 + lane.t) ^ (lane.g % 2 * 4)];
  }
};

/// More rows: a block has RowWarps times Blocks * 8 of them, each warp two panels, which are
/// `panels` (of two matrices) or follow each other in one. store(row, first column, sums of [panel]
/// [the two columns]) is called for the rows that there are. A warp without panels helps with rows.
template <int Blocks, int RowWarps, typename IndexOf, typename Store>
__device__ __forceinline__ void multiply_many(const Product<IndexOf>& product, Decoder (&panels)[2],
                                              bool has_panels, const Store& store) {
  constexpr int kThreads = kColumnWarps * RowWarps * 32;
  constexpr int kAhead = Blocks < 8 ? Decoder::kAhead : Decoder::kAheadOfMany;
  static_assert(kAhead <= 2);
  using Staged = StagedRows<Blocks * RowWarps * 8, kThreads>;
  static_assert(sizeof(Staged) <= 48 * 1024, "more needs a launch that asks for it");
  __shared__ Staged staged;
  const typename Staged::Own own(product);
  const Lane lane;
  const int first_block = static_cast<int>(threadIdx.x) / 32 / kColumnWarps * Blocks;
  const bool is_busy = has_panels && first_block * 8 < product.num_rows;
  const int steps = product.steps();
  LaneSums<Blocks> sums[2];
  LaneSums<Blocks> done[2];
  const auto close_sum = [&] {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          done[m].of[block][i] = __fadd_rn(done[m].of[block][i], sums[m].of[block][i]);
          sums[m].of[block][i] = 0;
        }
      }
    }
  };
  Decoder::Codes<2> codes[kAhead][2];
  const auto load = [&](int i, int step) {  // a step of those from `first` on
    if (step >= steps) return;
    codes[i % kAhead][0] = panels[0].load<2>(i);
    codes[i % kAhead][1] = panels[1].load<2>(i);
  };
  if (is_busy) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load(i, i);
  }
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) staged.load(own, product.depth, stage, stage);
  int slot = kStages - 1;
  for (int begin = 0; begin < steps; begin += product.steps_of_sum()) {
    const int end = min(steps, begin + product.steps_of_sum());
    for (int first = begin; first < end; first += 2) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      staged.load(own, product.depth, first / 2 + kStages - 1, slot);
      slot = slot + 1 == kStages ? 0 : slot + 1;
      if (!is_busy) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int step = first + i;
        if (step >= end) break;
        const StepWeights weights[2] = {{panels[0], codes[i % kAhead][0]},
                                        {panels[1], codes[i % kAhead][1]}};
        load(i + kAhead, step + kAhead);
        constexpr int kTogether = 4;
#pragma unroll
        for (int block = 0; block < Blocks; block += kTogether) {
          uint4 x[kTogether];
#pragma unroll
          for (int b = 0; b < kTogether; ++b) {
            x[b] = staged.at(slot, i, first_block + block + b, lane);
          }
          multiply_step<kTogether>(weights, x, {&sums[0].of[block], &sums[1].of[block]});
        }
      }
      panels[0].advance(2);
      panels[1].advance(2);
    }
    if (is_busy) close_sum();
  }
  if (!is_busy) return;
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = (first_block + block) * 8 + 2 * lane.t + i;
      if (row >= product.num_rows) continue;
      store(row, 2 * lane.g, {done[0].of[block][i], done[0].of[block][2 + i]},
            {done[1].of[block][i], done[1].of[block][2 + i]});
    }
  }
}

}  // namespace moesaic::cuda
