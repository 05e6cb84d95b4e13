#include "kernels/cuda/decoders/nvfp4.cuh"
#include "kernels/cuda/nvfp4_rows.h"
#include "kernels/cuda/scaled_mma.cuh"
#include "kernels/cuda/tensor_tile.cuh"

// Products of weights and activations in nvfp4 on tensor cores that take both as they are (mma.sync
// with block scales, sm_120 and sm_121). A step has 64 k: two of the panel's. Lane 4 g + t has the
// codes of k = 8 t to 8 t + 7 of either, of columns 2 g and 2 g + 1, which it reads as 8
// neighbouring bytes, a warp 256; the same k of rows of x come from shared memory, two blocks of 8
// rows at once. Codes of eight k are in the order of the panel on both sides, which their exact sum
// does not know. An mma takes its scales from some lanes alone and says from which: so one word a
// lane is the scales of gate and of up, or of four blocks of rows.

namespace moesaic::cuda {

/// `Blocks` times 8 rows of records.
template <int Blocks, int Panels>
struct ScaledTile {
  using Sums = TensorSums<Blocks>;
  static constexpr int kRows = Blocks * 8;
  static constexpr int kPanels = Panels;
  static constexpr int kThreads = Panels * kScaledSplits * 32;
  static constexpr int kStepDepth = 64;
  static constexpr int kDepth = Blocks == 16 ? 512 : 1024;
  static constexpr int kUnroll = Blocks == 1 ? 4 : 2;
  static constexpr int kChunkBytes = kDepth / kRecordDepth * kRecordBytes;  // of a row
  /// An odd number of 16 bytes: eight rows of 16 bytes in different banks.
  static constexpr int kStride = kChunkBytes | 16;
  static constexpr int kScaleWords = (Blocks + 3) / 4;
  static constexpr int kSharedBytes = shared_bytes(kRows * kStride, Panels, kRows);
  static_assert(kSharedBytes <= 48 * 1024, "more needs a launch that asks for it");

  template <typename Rows>
  __device__ __forceinline__ static void load(std::uint8_t* memory, const Rows& rows, int first_k) {
    constexpr int kPieces = kChunkBytes / 16;
    const int row_bytes = (rows.depth + kRecordDepth - 1) / kRecordDepth * kRecordBytes;
    const int first = first_k / kRecordDepth * kRecordBytes;
    const auto* const records = reinterpret_cast<const std::uint8_t*>(rows.x);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
      const int row = i / kPieces;
      const int at = i % kPieces * 16;
      if (first + at >= row_bytes) continue;
      std::uint8_t* const to = memory + row * kStride + at;
      const bool is_there = row < rows.count;
      copy_16_async(to, records + rows.index_of(is_there ? row : 0) * row_bytes + first + at,
                    is_there);
    }
    wait_for_copies();
  }

  template <int Matrices>
  __device__ __forceinline__ static void add(Sums (&sums)[Matrices],
                                             const PanelPlace<Matrices>& panel,
                                             const std::uint8_t* memory, int turn, int step) {
    static_assert(Matrices <= 2 && kScaledSplits == kRecordDepth / kStepDepth);
    const int split = static_cast<int>(threadIdx.x) / 32 % kScaledSplits;
    const std::uint8_t* const x = memory + turn * kRecordBytes;
    std::uint32_t codes[Blocks][2];
    load_codes(codes, x + split * 32);
    std::uint32_t row_scales[kScaleWords];
    load_scales(row_scales, x + kRecordCodeBytes + split * 4);

    const int steps = (panel.depth + 31) / 32;
    const bool has_half = step < steps / 2;
    const std::int64_t first = panel.index * Decoder::panel_bytes(steps, panel.form);
    const std::uint8_t* const of_scales =
        threadIdx.x % 4 < 2 ? panel.panels[0] : panel.panels[Matrices - 1];
    const std::uint32_t scales =
        weight_scales(Decoder(of_scales + first, steps, panel.form, 0, 0), step, has_half);
#pragma unroll
    for (int m = 0; m < Matrices; ++m) {
      std::uint32_t a[4] = {};
      load_weights(a, Decoder(panel.panels[m] + first, steps, panel.form, 0, 0), step, has_half);
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        mma_nvfp4(sums[m].sum[block], a, {scales, m}, codes[block],
                  {row_scales[block / 4], block % 4});
      }
    }
  }

  __device__ __forceinline__ static float scaled(float sum, const MlpArguments& arguments,
                                                 std::int64_t row) {
    return __fmul_rn(sum, arguments.row_scales[row]);
  }

 private:
  /// x: lane 4 g + t gets words t and 4 + t of row g of each block.
  __device__ __forceinline__ static void load_codes(std::uint32_t (&codes)[Blocks][2],
                                                    const std::uint8_t* x) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    x += lane % 8 * kStride + lane / 8 % 2 * 16;
    if constexpr (Blocks == 1) {
      load_matrices(codes[0], x);
    } else {
      x += lane / 16 * 8 * kStride;
#pragma unroll
      for (int block = 0; block < Blocks; block += 2) {
        load_matrices(codes[block], codes[block + 1], x + block * 8 * kStride);
      }
    }
  }

  /// x: lane 4 g + t gets the scales of row g of blocks t, 4 + t, 8 + t ...
  __device__ __forceinline__ static void load_scales(std::uint32_t (&scales)[kScaleWords],
                                                     const std::uint8_t* x) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = Blocks == 1 ? 0 : static_cast<int>(threadIdx.x) % 4;
    x += (t * 8 + g) * kStride;
#pragma unroll
    for (int i = 0; i < kScaleWords; ++i) {
      scales[i] = *reinterpret_cast<const std::uint32_t*>(x + i * 32 * kStride);
    }
  }

  /// Weights: the second half is zero where the panel has no more steps.
  __device__ __forceinline__ static void load_weights(std::uint32_t (&a)[4], const Decoder& decoder,
                                                      int step, bool has_half) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    const std::uint8_t* const from =
        decoder.codes + (t * 64 + g * 8) + static_cast<std::int64_t>(step) * 2 * kE2m1StepBytes;
    const auto first = load_words<2>(from);
    a[0] = plain_e2m1(first.word[0]);
    a[1] = plain_e2m1(first.word[1]);
    if (!has_half) return;
    const auto second = load_words<2>(from + kE2m1StepBytes);
    a[2] = plain_e2m1(second.word[0]);
    a[3] = plain_e2m1(second.word[1]);
  }

  /// Weights: lanes 4 g and 4 g + 1 get the scales of columns 2 g and 2 g + 1 of the first matrix,
  /// lanes 4 g + 2 and 4 g + 3 those of the last one.
  __device__ __forceinline__ static std::uint32_t weight_scales(const Decoder& decoder, int step,
                                                                bool has_half) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const std::uint8_t* const from = decoder.scales + (2 * g + static_cast<int>(threadIdx.x) % 2) +
                                     static_cast<std::int64_t>(step) * 64;
    std::uint32_t scales = __byte_perm(from[0], from[16], 0x1140);
    if (has_half) scales = __byte_perm(scales, __byte_perm(from[32], from[48], 0x1140), 0x5410);
    return scales;
  }
};

}  // namespace moesaic::cuda

MOESAIC_TENSOR_KERNELS(ScaledTile)
