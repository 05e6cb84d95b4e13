#include "kernels/cuda/plan_arguments.h"

// What the host plans for a batch (src/moe/dispatch_plan.h, mlp_tiles.h), made where the batch is:
// one block, no sums whose order could vary.

namespace moesaic::cuda {
namespace {

constexpr int kWords = kMostPlannedInputs / 32;
constexpr std::uint32_t kAllLanes = 0xffffffffU;

struct SharedPlan {
  std::uint32_t inputs[kMostPlannedMlps][kWords];  // of each MLP: a bit each
  /// Of each MLP, and behind the last: its first row, and its first tile of each kind.
  std::int32_t first[1 + kMostTileKinds][kMostPlannedMlps + 1];

  [[nodiscard]] __device__ __forceinline__ int rows_of(int mlp) const {
    int rows = 0;
#pragma unroll
    for (int word = 0; word < kWords; ++word) rows += __popc(inputs[mlp][word]);
    return rows;
  }
};

/// Rows of an MLP as tiles: some of the largest kind, then one for the rest.
struct Cut {
  int full;
  int rest;       // rows: 1 to those of the largest kind, or none at all
  int rest_kind;  // the smallest that takes them

  __device__ __forceinline__ Cut(const TileKinds& kinds, int rows) {
    int shift = 0;
    rest_kind = 0;
#pragma unroll
    for (int kind = 0; kind < kMostTileKinds; ++kind) {
      if (kind < kinds.count) shift = 31 - __clz(kinds.rows[kind]);
    }
    full = rows == 0 ? 0 : (rows - 1) >> shift;
    rest = rows - (full << shift);
#pragma unroll
    for (int kind = 1; kind < kMostTileKinds; ++kind) {
      if (kind < kinds.count && rest > kinds.rows[kind - 1]) rest_kind = kind;
    }
  }
  [[nodiscard]] __device__ __forceinline__ int tiles(const TileKinds& kinds, int kind) const {
    return (kind == kinds.count - 1 ? full : 0) + (rest > 0 && kind == rest_kind ? 1 : 0);
  }
};

/// Which MLP of this GPU a choice is for; -1: none.
__device__ __forceinline__ int mlp_of(const PlanArguments& arguments, int choice) {
  const std::int32_t expert = arguments.experts[choice];
  if (expert < 0 || expert >= arguments.num_experts) return -1;
  return arguments.mlps_of_experts[expert];
}

/// A warp has 32 inputs, and of each MLP's words the one of these: the lanes that chose the same.
__device__ __forceinline__ void mark_inputs(const PlanArguments& arguments, int num_inputs,
                                            SharedPlan& plan) {
  const int input = static_cast<int>(threadIdx.x);
  const int word = input / 32;
  const std::uint32_t lower = (1U << (input % 32)) - 1;
  if (word * 32 >= num_inputs) return;
  for (int c = 0; c < arguments.topk; ++c) {
    const int mlp = input < num_inputs ? mlp_of(arguments, input * arguments.topk + c) : -1;
    const std::uint32_t same = __match_any_sync(kAllLanes, mlp);
    if (mlp >= 0 && (same & lower) == 0) plan.inputs[mlp][word] |= same;
    __syncwarp();
  }
}

/// Warp 0 sums rows, warp 1 + k tiles of kind k.
__device__ __forceinline__ void sum_counts(const PlanArguments& arguments, SharedPlan& plan) {
  const int what = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (what > arguments.kinds.count) return;
  int before = 0;
  for (int first = 0; first < arguments.num_mlps; first += 32) {
    const int mlp = first + lane;
    const int rows = mlp < arguments.num_mlps ? plan.rows_of(mlp) : 0;
    const int own = what == 0 ? rows : Cut(arguments.kinds, rows).tiles(arguments.kinds, what - 1);
    int sum = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, distance);
      sum += lane >= distance ? other : 0;
    }
    if (mlp < arguments.num_mlps) plan.first[what][mlp] = before + sum - own;
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  if (lane == 0) plan.first[what][arguments.num_mlps] = before;
}

/// Rows of an MLP are in the order of their inputs.
__device__ __forceinline__ void place_rows(const PlanArguments& arguments, int num_inputs,
                                           const SharedPlan& plan) {
  const int input = static_cast<int>(threadIdx.x);
  if (input >= arguments.most_inputs) return;
  for (int c = 0; c < arguments.topk; ++c) {
    const int choice = input * arguments.topk + c;
    const int mlp = input < num_inputs ? mlp_of(arguments, choice) : -1;
    int place = -1;
    if (mlp >= 0) {
      place =
          plan.first[0][mlp] + __popc(plan.inputs[mlp][input / 32] & ((1U << (input % 32)) - 1));
      for (int word = 0; word < input / 32; ++word) place += __popc(plan.inputs[mlp][word]);
      arguments.row_indices[place] = input;
    }
    arguments.places[choice] = place;
  }
}

/// The lists of all kinds, one after the other, filled up with tiles of no rows.
__device__ __forceinline__ void write_tiles(const PlanArguments& arguments,
                                            const SharedPlan& plan) {
  const TileKinds& kinds = arguments.kinds;
  MlpTile* list = arguments.tiles;
#pragma unroll
  for (int kind = 0; kind < kMostTileKinds; ++kind) {
    if (kind >= kinds.count) break;
    const bool is_last = kind == kinds.count - 1;
    for (int mlp = static_cast<int>(threadIdx.x); mlp < arguments.num_mlps; mlp += kPlanThreads) {
      const int first = plan.first[0][mlp];
      const Cut cut(kinds, plan.first[0][mlp + 1] - first);
      int tile = plan.first[1 + kind][mlp];
      const int full = is_last ? cut.full : 0;
      for (int i = 0; i < full; ++i) {
        list[tile++] = {mlp, first + i * kinds.rows[kind], kinds.rows[kind]};
      }
      if (cut.rest == 0 || cut.rest_kind != kind) continue;
      list[tile] = {mlp, plan.first[0][mlp + 1] - cut.rest, cut.rest};
    }
    for (int tile = plan.first[1 + kind][arguments.num_mlps] + static_cast<int>(threadIdx.x);
         tile < kinds.most[kind]; tile += kPlanThreads) {
      list[tile] = {0, 0, 0};
    }
    list += kinds.most[kind];
  }
}

}  // namespace
}  // namespace moesaic::cuda

extern "C" __global__ void __launch_bounds__(256, 1)
    plan(const moesaic::cuda::PlanArguments arguments) {
  using namespace moesaic::cuda;
  __shared__ SharedPlan shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int num_inputs = min(*arguments.num_inputs, arguments.most_inputs);
  for (int i = thread; i < arguments.num_mlps * kWords; i += kPlanThreads) {
    shared.inputs[i / kWords][i % kWords] = 0;
  }
  __syncthreads();
  mark_inputs(arguments, num_inputs, shared);
  __syncthreads();
  sum_counts(arguments, shared);
  __syncthreads();
  place_rows(arguments, num_inputs, shared);
  for (int mlp = thread; mlp <= arguments.num_mlps; mlp += kPlanThreads) {
    arguments.first_rows[mlp] = shared.first[0][mlp];
  }
  write_tiles(arguments, shared);
}
