#include "kernels/cuda/nvfp4_rounding.cuh"
#include "kernels/cuda/nvfp4_rows.h"

// Rows of activations in nvfp4, a block each: as bf16, and as records.

/// Rows as bf16, which holds them exactly.
extern "C" __global__ void __launch_bounds__(128, 1)
    round_rows(const moesaic::cuda::RoundArguments arguments) {
  using namespace moesaic::cuda;
  if (is_beyond(arguments.count)) return;
  const int depth = arguments.depth;
  const bool is_given = arguments.input_scale != 0;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * depth;
  __shared__ WarpMaxima of_warps;
  const float row_scale =
      scale_of_row(arguments.from + first, depth, arguments.input_scale, of_warps);
  for (int k = static_cast<int>(threadIdx.x) * 16; k < depth; k += kRowThreads * 16) {
    Sixteen group;
    group.load(arguments.from + first, k, depth);
    const GroupScale scale(group.largest(), row_scale, is_given);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float low = scale.round(group.value(2 * i));
      const float high = scale.round(group.value(2 * i + 1));
      const std::uint32_t pair = __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000U);
      group.pairs[i] = row_scale > 0 ? pair : row_scale == 0 ? 0U : 0x7fc07fc0U;
    }
    group.store(arguments.rounded + first, k, depth);
  }
}

/// Rows as records.
extern "C" __global__ void __launch_bounds__(128, 1)
    quantize_rows(const moesaic::cuda::RoundArguments arguments) {
  using namespace moesaic::cuda;
  if (is_beyond(arguments.count)) return;
  const int depth = arguments.depth;
  const bool is_given = arguments.input_scale != 0;
  const int records = arguments.row_records;
  const std::uint16_t* const row = arguments.from + static_cast<std::int64_t>(blockIdx.x) * depth;
  std::uint8_t* const out =
      arguments.records + static_cast<std::int64_t>(blockIdx.x) * records * kRecordBytes;
  __shared__ WarpMaxima of_warps;
  const float row_scale = scale_of_row(row, depth, arguments.input_scale, of_warps);
  for (int k = static_cast<int>(threadIdx.x) * 16; k < records * kRecordDepth;
       k += kRowThreads * 16) {
    Sixteen group;
    std::uint32_t words[2] = {};
    std::uint32_t code = 0;
    if (row_scale > 0) {
      group.load(row, k, depth);
      const GroupScale scale(group.largest(), row_scale, is_given);
      code = scale.code;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        words[i / 8] |= scale.encode(group.value(i)) << (i % 2 * 16 + i % 8 / 2 * 4);
      }
    }
    std::uint8_t* const record = out + k / kRecordDepth * kRecordBytes;
    auto* const codes = reinterpret_cast<std::uint32_t*>(record + k % kRecordDepth / 2);
    codes[0] = words[0];
    codes[1] = words[1];
    record[kRecordCodeBytes + k % kRecordDepth / 16] = static_cast<std::uint8_t>(code);
  }
  if (threadIdx.x != 0) return;
  arguments.row_scales[blockIdx.x] = power_of_row(row_scale, arguments.input_scale);
}
