#include "kernels/cuda/row_arguments.h"

// Whole rows, a block each.

extern "C" __global__ void __launch_bounds__(128, 1)
    gather(const moesaic::cuda::GatherArguments arguments) {
  const auto words = static_cast<std::int64_t>(arguments.row_words);
  const auto* const from =
      static_cast<const uint4*>(arguments.from) + arguments.rows[blockIdx.x] * words;
  auto* const to = static_cast<uint4*>(arguments.to) + blockIdx.x * words;
  for (int i = static_cast<int>(threadIdx.x); i < arguments.row_words;
       i += moesaic::cuda::kRowThreads) {
    to[i] = from[i];
  }
}

/// The sums of kernels/vector_kernels.h's add_scaled, from zero: the same bits. Choices without a
/// place count nothing.
extern "C" __global__ void __launch_bounds__(128, 1)
    combine(const moesaic::cuda::CombineArguments arguments) {
  const int fours = arguments.hidden / 4;
  const std::int64_t token = blockIdx.x;
  const std::int32_t* const places = arguments.places + token * arguments.topk;
  const float* const weights = arguments.weights + token * arguments.topk;
  auto* const y = reinterpret_cast<float4*>(arguments.y) + token * fours;
  for (int i = static_cast<int>(threadIdx.x); i < fours; i += moesaic::cuda::kRowThreads) {
    float4 sum = {0, 0, 0, 0};
    for (int c = 0; c < arguments.topk; ++c) {
      if (places[c] < 0) continue;
      const float weight = weights[c];
      const float4 x = reinterpret_cast<const float4*>(
          arguments.results)[static_cast<std::int64_t>(places[c]) * fours + i];
      sum = {__fmaf_rn(weight, x.x, sum.x), __fmaf_rn(weight, x.y, sum.y),
             __fmaf_rn(weight, x.z, sum.z), __fmaf_rn(weight, x.w, sum.w)};
    }
    y[i] = sum;
  }
}
