#pragma once

#include "kernels/cuda/tensor_tile.cuh"

// Products on tensor cores (mma.sync, sm_80 and later): weights become bf16 in registers, steps
// have 32 k. Lane 4 g + t has k = 8 t to 8 t + 7 of a step, which are slots 2 t, 2 t + 1, 2 t + 8
// and 2 t + 9 of two mma one after the other. So a lane reads 8 neighbouring bytes of codes, a
// warp 256, and of a row of x 16 bytes from shared memory.
//
// A .cu file includes a decoder, then this.

namespace moesaic::cuda {

inline constexpr int kRowPadding =
    32;  // elements: rows g and g + 1 in different halves of the banks

/// `Blocks` times 8 rows of bf16.
template <int Blocks, int Panels>
struct MmaTile {
  using Sums = TensorSums<Blocks>;
  static constexpr int kRows = Blocks * 8;
  static constexpr int kPanels = Panels;
  static constexpr int kThreads = Panels * kMmaSplits * 32;
  static constexpr int kStepDepth = 32;
  static constexpr int kDepth = Blocks == 1 ? 1024 : Blocks == 4 ? 512 : 128;
  static constexpr int kUnroll = Blocks == 1 ? 4 : 1;
  static constexpr int kStride = kDepth + kRowPadding;
  static constexpr int kSharedBytes = shared_bytes(kRows * kStride * 2, Panels, kRows);
  static_assert(kSharedBytes <= 48 * 1024, "more needs a launch that asks for it");

  template <typename Rows>
  __device__ __forceinline__ static void load(std::uint8_t* memory, const Rows& rows, int first_k) {
    constexpr int kPieces = kDepth / 8;
    auto* const shared = reinterpret_cast<std::uint16_t*>(memory);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
      const int row = i / kPieces;
      const int k = first_k + i % kPieces * 8;
      if (k >= (rows.depth + 31) / 32 * 32) continue;
      std::uint16_t* const to = shared + row * kStride + i % kPieces * 8;
      if (row < rows.count && k < rows.depth) {
        copy_16_async(to, rows.x + rows.index_of(row) * rows.depth + k);
      } else {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
      }
    }
    wait_for_copies();
  }

  template <int Matrices>
  __device__ __forceinline__ static void add(Sums (&sums)[Matrices],
                                             const PanelPlace<Matrices>& panel,
                                             const std::uint8_t* memory, int turn, int step) {
#pragma unroll
    for (int m = 0; m < Matrices; ++m) {
      const int steps = (panel.depth + 31) / 32;
      const Decoder decoder(panel.panels[m] + panel.index * Decoder::panel_bytes(steps, panel.form),
                            steps, panel.form);
      add_step(sums[m], decoder, memory, turn, step);
    }
  }

  __device__ __forceinline__ static float scaled(float sum, const MlpArguments&, std::int64_t) {
    return sum;
  }

 private:
  __device__ __forceinline__ static void add_step(Sums& sums, const Decoder& decoder,
                                                  const std::uint8_t* memory, int turn, int step) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    const int split = static_cast<int>(threadIdx.x) / 32 % kMmaSplits;
    std::uint32_t pairs[2][4];
    decoder.decode<2>(step, t, 2 * g, pairs);
    const std::uint32_t first[4] = {pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]};
    const std::uint32_t second[4] = {pairs[0][2], pairs[1][2], pairs[0][3], pairs[1][3]};
    const auto* const x =
        reinterpret_cast<const std::uint16_t*>(memory) + (turn * kMmaSplits + split) * 32 + t * 8;
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
      const uint4 row = *reinterpret_cast<const uint4*>(x + (block * 8 + g) * kStride);
      mma_bf16(sums.sum[block], first, row.x, row.y);
      mma_bf16(sums.sum[block], second, row.z, row.w);
    }
  }
};

}  // namespace moesaic::cuda

MOESAIC_TENSOR_KERNELS(MmaTile)
