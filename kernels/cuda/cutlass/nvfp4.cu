// libmoesaic_cutlass.so: grouped products of nvfp4 by CUTLASS, for sm_100a and sm_103a (tcgen05
// with block scales). CUTLASS's host code wants the CUDA runtime, which is linked in here alone; it
// works in the context that is the thread's current one. A group of rows is CUTLASS's A, its matrix
// B.

#include <cuda_runtime.h>

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/version.h>
#include <cstddef>
#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <string>

#include "kernels/cuda/grouped_product.h"

namespace moesaic::cuda {
namespace {

using cute::_1;
using cute::_128;
using cute::_256;

// One shape of tile for any number of rows: a block has 128 of them and 128 outputs, and adds all k
// in order in one sum; none is split.
using Tile = cute::Shape<_128, _128, _256>;
using Cluster = cute::Shape<_1, _1, _1>;
using Problem = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
using Codes = cutlass::nv_float4_t<cutlass::float_e2m1_t>;
using Chip = cutlass::arch::Sm100;  // sm_103 has the instructions of sm_100
using Operator = cutlass::arch::OpClassBlockScaledTensorOp;

constexpr int kCodeAlignment = 32;   // elements: 16 bytes
constexpr int kResultAlignment = 4;  // likewise
constexpr int kGroupOf = 16;         // k that share a scale

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    Chip, Operator, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    void, cutlass::layout::RowMajor*, kResultAlignment, float, cutlass::layout::RowMajor*,
    kResultAlignment, cutlass::epilogue::PtrArrayTmaWarpSpecialized1Sm>::CollectiveOp;

using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    Chip, Operator, Codes, cutlass::layout::RowMajor*, kCodeAlignment, Codes,
    cutlass::layout::ColumnMajor*, kCodeAlignment, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
        sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelPtrArrayTmaWarpSpecialized1SmNvf4Sm100>::CollectiveOp;

using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

/// Shared memory that a block of sm_100 and sm_103 may have.
constexpr int kMostSharedBytes = 227 * 1024;
static_assert(sizeof(typename Kernel::SharedStorage) <= kMostSharedBytes,
              "a launch would fail, or share what it must not");
static_assert(Kernel::SharedStorageSize == sizeof(typename Kernel::SharedStorage));

using StrideA = typename Kernel::InternalStrideA;
using StrideB = typename Kernel::InternalStrideB;
using StrideD = typename Kernel::InternalStrideD;
using ScaleConfig = typename Mainloop::Sm1xxBlkScaledConfig;
using LayoutA = typename Mainloop::InternalLayoutSFA;
using LayoutB = typename Mainloop::InternalLayoutSFB;

// What this program writes is what CUTLASS reads.
using Shape = typename Problem::UnderlyingProblemShape;
static_assert(sizeof(Shape) == sizeof(GroupShape) && alignof(Shape) <= alignof(GroupShape));
static_assert(ScaleConfig::SFVecSize == kGroupOf);
static_assert(kGroupSizes % cute::size<0>(Tile{}) == 0 && kScaleBlockRows == 128);

/// Lists that are the same for all groups, one after the other, in the GPU's memory.
struct Layouts {
  explicit Layouts(const void* memory, int groups) {
    auto* next = static_cast<const std::byte*>(memory);
    const auto take = [&](auto*& list) {
      using T = std::remove_reference_t<decltype(*list)>;
      list = reinterpret_cast<T*>(const_cast<std::byte*>(next));
      next += (static_cast<std::size_t>(groups) * sizeof(T) + 255) / 256 * 256;
    };
    take(a);
    take(b);
    take(d);
    take(a_scales);
    take(b_scales);
    bytes = next - static_cast<const std::byte*>(memory);
  }
  StrideA* a = nullptr;
  StrideB* b = nullptr;
  StrideD* d = nullptr;
  LayoutA* a_scales = nullptr;
  LayoutB* b_scales = nullptr;
  std::ptrdiff_t bytes = 0;
};

/// What stays until the thread's next call.
const char* reason(const std::string& text) {
  thread_local std::string kept;
  kept = text;
  return kept.c_str();
}

/// `host_shapes`: null, or [groups] of which sizes are checked.
typename Gemm::Arguments arguments_of(const GroupedProduct& product, const Shape* host_shapes) {
  const Layouts layouts(product.layouts, product.num_groups);
  const GroupLists& lists = product.lists;
  cutlass::KernelHardwareInfo hardware;
  hardware.device_id = product.device;
  hardware.sm_count = product.multiprocessors;
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGrouped,
      {product.num_groups, reinterpret_cast<Shape*>(lists.shapes), host_shapes},
      {reinterpret_cast<typename Mainloop::ArrayElementA const**>(lists.a), layouts.a,
       reinterpret_cast<typename Mainloop::ArrayElementB const**>(lists.b), layouts.b,
       reinterpret_cast<typename Mainloop::ElementSF const**>(lists.a_scales), layouts.a_scales,
       reinterpret_cast<typename Mainloop::ElementSF const**>(lists.b_scales), layouts.b_scales},
      {{}, nullptr, nullptr, lists.d, layouts.d},
      hardware};
  arguments.epilogue.thread.alpha = 1;
  arguments.epilogue.thread.beta = 0;
  return arguments;
}

const char* failure(cutlass::Status status) {
  if (status == cutlass::Status::kSuccess) return nullptr;
  const cudaError_t error = cudaGetLastError();
  std::string text = cutlassGetStatusString(status);
  if (error != cudaSuccess) text += std::string(" (") + cudaGetErrorString(error) + ")";
  return reason(text);
}

}  // namespace
}  // namespace moesaic::cuda

using namespace moesaic::cuda;

#define MOESAIC_OFFERED __attribute__((visibility("default")))

extern "C" {

MOESAIC_OFFERED int moesaic_cutlass_interface() {
  return kGroupedInterface;
}

MOESAIC_OFFERED const char* moesaic_cutlass_text() {
  static const std::string text =
      "CUTLASS " + std::to_string(CUTLASS_MAJOR) + "." + std::to_string(CUTLASS_MINOR) + "." +
      std::to_string(CUTLASS_PATCH) + ", CUDA " + std::to_string(CUDART_VERSION / 1000) + "." +
      std::to_string(CUDART_VERSION % 1000 / 10);
  return text.c_str();
}

MOESAIC_OFFERED std::int64_t moesaic_cutlass_workspace_bytes(int multiprocessors) {
  GroupedProduct product{};
  product.num_groups = 1;
  product.multiprocessors = multiprocessors;
  return static_cast<std::int64_t>(Gemm::get_workspace_size(arguments_of(product, nullptr)));
}

MOESAIC_OFFERED std::int64_t moesaic_cutlass_layout_bytes(int num_groups) {
  return Layouts(nullptr, num_groups).bytes;
}

/// Bounds of the scales are those of the largest group: blocks of 128 rows are read as a whole.
MOESAIC_OFFERED const char* moesaic_cutlass_write_layouts(const GroupedProduct* product,
                                                          void* out) {
  GroupedProduct one = *product;
  one.num_groups = 1;
  const Shape shape{kMostGroupRows, product->outputs, product->depth};
  const cutlass::Status status = Gemm::can_implement(arguments_of(one, &shape));
  if (status != cutlass::Status::kSuccess) return reason(cutlassGetStatusString(status));
  const Layouts layouts(out, product->num_groups);
  const auto sizes = cute::make_shape(kMostGroupRows, product->outputs, product->depth, 1);
  for (int group = 0; group < product->num_groups; ++group) {
    layouts.a[group] = cute::make_stride(std::int64_t{product->depth}, _1{}, cute::_0{});
    layouts.b[group] = cute::make_stride(std::int64_t{product->depth}, _1{}, cute::_0{});
    layouts.d[group] = cute::make_stride(std::int64_t{product->result_stride}, _1{}, cute::_0{});
    layouts.a_scales[group] = ScaleConfig::tile_atom_to_shape_SFA(sizes);
    layouts.b_scales[group] = ScaleConfig::tile_atom_to_shape_SFB(sizes);
  }
  return nullptr;
}

MOESAIC_OFFERED std::int64_t moesaic_cutlass_scale_place(const GroupShape* shape, int row, int k) {
  const auto layout = ScaleConfig::tile_atom_to_shape_SFA(
      cute::make_shape(shape->rows, shape->outputs, shape->depth, 1));
  return static_cast<std::int64_t>(layout(row, k, 0));
}

MOESAIC_OFFERED const char* moesaic_cutlass_launch(const GroupedProduct* product, void* stream) {
  const auto order = static_cast<cudaStream_t>(stream);
  Gemm gemm;
  const cutlass::Status ready =
      gemm.initialize(arguments_of(*product, nullptr), product->workspace, order);
  if (ready != cutlass::Status::kSuccess) return failure(ready);
  return failure(gemm.run(order));
}

}  // extern "C"
