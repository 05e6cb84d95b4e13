#include "kernels/cuda/decoders/nvfp4.cuh"
#include "kernels/cuda/nvfp4_rows.h"
#include "kernels/cuda/tensor_tile.cuh"

// Products of weights and activations in nvfp4 on tensor cores that take both as they are (mma.sync
// with block scales, sm_120 and sm_121). A step has 64 k: two of the panel's. Lane 4 g + t has the
// codes of k = 8 t to 8 t + 7 of either, of columns 2 g and 2 g + 1, which it reads as 8
// neighbouring bytes, a warp 256; and of a row of x 8 bytes from shared memory. Codes of eight k
// are in the order of the panel on both sides, which their exact sum does not know.

namespace moesaic::cuda {

/// d[16 columns, 8 rows] += a[16, 64] b[64, 8] of one warp, e2m1 with a scale for 16 k. Lane 4 g +
/// t has of a the rows g (0, 2) and g + 8 (1, 3), k 8 t to 8 t + 7 (0, 1) and 8 t + 32 to 8 t + 39
/// (2, 3); of b column g, the same k. The scales of row g are those of lane 4 g, of row g + 8 those
/// of lane 4 g + 1, of column g those of lane 4 g: a byte for 16 k, the first the lowest.
__device__ __forceinline__ void mma_nvfp4(float (&d)[4], const std::uint32_t (&a)[4],
                                          std::uint32_t scales_a, uint2 b, std::uint32_t scales_b) {
  asm volatile(
      "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col"
      ".f32.e2m1.e2m1.f32.ue4m3 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, 0}, %11, {0, 0};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(scales_a),
        "r"(scales_b));
}

/// `Blocks` times 8 rows of records.
template <int Blocks, int Panels>
struct ScaledTile {
  using Sums = TensorSums<Blocks>;
  static constexpr int kRows = Blocks * 8;
  static constexpr int kPanels = Panels;
  static constexpr int kThreads = Panels * kMmaSplits * 32;
  static constexpr int kStepDepth = 64;
  static constexpr int kDepth = Blocks == 16 ? 512 : 1024;
  static constexpr int kUnroll = Blocks == 1 ? 4 : 1;
  static constexpr int kChunkBytes = kDepth / kRecordDepth * kRecordBytes;  // of a row
  /// 32 beyond a multiple of 128: four rows of 32 bytes in different banks.
  static constexpr int kStride = (kChunkBytes + 95) / 128 * 128 + 32;
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
      if (row < rows.count) {
        copy_16_async(to, records + rows.index_of(row) * row_bytes + first + at);
      } else {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
      }
    }
    wait_for_copies();
  }

  __device__ __forceinline__ static void add(Sums& sums, const PanelPlace& panel,
                                             const std::uint8_t* memory, int place, int step) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    const int steps = (panel.depth + 31) / 32;
    const Decoder decoder(panel.panels + panel.index * Decoder::panel_bytes(steps, panel.form),
                          steps, panel.form);
    std::uint32_t a[4] = {};
    std::uint32_t scales = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (2 * step + half >= steps) break;
      const auto words = load_words<2>(decoder.codes + ((2 * step + half) * 4 + t) * 64 + g * 8);
      a[2 * half] = plain_e2m1(words.word[0]);
      a[2 * half + 1] = plain_e2m1(words.word[1]);
      const std::uint8_t* const bytes =
          decoder.scales + (2 * step + half) * 32 + 2 * g + t % 2;  // of 16 k, then the next
      scales |= (bytes[0] | static_cast<std::uint32_t>(bytes[16]) << 8) << (16 * half);
    }
    const std::uint8_t* const x = memory + place / 4 * kRecordBytes;
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
      const std::uint8_t* const row = x + (block * 8 + g) * kStride;
      const uint2 codes = *reinterpret_cast<const uint2*>(row + place % 4 * 32 + t * 8);
      const auto row_scales =
          *reinterpret_cast<const std::uint32_t*>(row + kRecordCodeBytes + place % 4 * 4);
      mma_nvfp4(sums.sum[block], a, scales, codes, row_scales);
    }
  }

  __device__ __forceinline__ static float scaled(float sum, const MlpArguments& arguments,
                                                 std::int64_t row) {
    return __fmul_rn(sum, arguments.row_scales[row]);
  }
};

}  // namespace moesaic::cuda

MOESAIC_TENSOR_KERNELS(ScaledTile)
