#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/device.h"
#include "kernels/cuda/grouped_library.h"
#include "kernels/cuda/grouped_room.h"
#include "kernels/mlp_weights.h"
#include "kernels/vector_kernels.h"

namespace moesaic {

/// What a matrix needs to be multiplied by the library of grouped products; empty if it has all,
/// else what is missing: "it multiplies matrices in nvfp4 alone, not in bf16".
[[nodiscard]] std::string missing_for_groups(const PackedMatrix& matrix);

/// Packed matrices in the memory of a GPU become, where they are, what that library reads
/// (grouped_arguments.h). Once: nothing else reads them afterwards.
void arrange_for_groups(Device& device, std::span<const MlpWeights> mlps);

/// Gated MLPs on a GPU by a library's products of rows and weights in nvfp4, gate and up in one,
/// down in another. Everything around them is made on the GPU: the lists of groups, rows in nvfp4
/// with padded scales, gated activations, scaled results.
class GroupedMlps {
 public:
  struct Setup {
    Device& device;
    const GroupedLibrary& library;
    Gating gating{};
    std::int64_t hidden = 0;
    std::int64_t width = 0;
    float x_scale = 0;  // PackedMatrix::input_scale of gate and up
    float inner_scale = 0;
    CudaAddress mlps = 0;  // MlpMatrices, arranged
    std::int64_t num_mlps = 0;
  };
  /// What `setup` refers to outlives this. Waits until lists are on the GPU. Throws
  /// Error{resource} for a GPU that the library needs more memory on than there is for it.
  explicit GroupedMlps(const Setup& setup);

  /// Of which memory and groups are there, all in the GPU's memory.
  struct Pass {
    CudaAddress x = 0;            // [inputs, hidden] bf16; of start_down() [rows, width]
    CudaAddress row_indices = 0;  // [rows] int32 the input of each row
    std::int64_t num_rows = 0;
    CudaAddress there = 0;  // 0, or int32: how many of them there are
    CudaAddress tiles = 0;  // [groups] MlpTile, some without rows
    std::int64_t num_groups = 0;
    CudaAddress inner = 0;   // [rows, width] bf16
    CudaAddress memory = 0;  // of room() for so many rows
    CudaAddress y = 0;       // [rows, hidden] f32
  };
  [[nodiscard]] GroupedRoom room(std::int64_t rows) const noexcept;
  /// Asks for the pass, by launches that are the same for any groups.
  void start(const Pass& pass);
  /// The second half of it alone, y = x down^T.
  void start_down(const Pass& pass);
  /// Takes the memory that is the library's for passes of up to so many rows.
  void make_room(std::int64_t num_rows) { make_layouts_for(room(num_rows).groups()); }

 private:
  /// Rows that become a product's input.
  struct Input {
    CudaAddress from = 0;
    CudaAddress indices = 0;
    std::int64_t depth = 0;
    float scale = 0;
  };
  /// What all products of one kind have in common.
  struct Kind {
    std::string name;
    std::int32_t outputs = 0;
    std::int32_t depth = 0;
    std::int32_t result_stride = 0;
    std::int32_t groups_of_mlp = 1;
    DeviceBuffer layouts{};
  };
  void make_layouts(Kind& kind, std::int64_t num_groups);
  void make_layouts_for(std::int64_t num_groups);
  [[nodiscard]] GroupedMemory begin(const Pass& pass);
  void place(const Pass& pass, const GroupedMemory& memory);
  void quantize(const Pass& pass, const GroupedMemory& memory, const Input& input);
  void multiply(const Kind& kind, const cuda::GroupLists& lists, const Pass& pass,
                const GroupedMemory& memory);
  void gate(const Pass& pass, const GroupedMemory& memory);
  void multiply_down(const Pass& pass, const GroupedMemory& memory, CudaAddress inner);
  [[nodiscard]] cuda::GroupSumArguments sum_arguments(const Pass& pass,
                                                      const GroupedMemory& memory) const;
  [[nodiscard]] cuda::GroupedProduct product_of(const Kind& kind, std::int64_t num_groups) const;

  Setup setup_;
  Kind gate_up_;
  Kind down_;
  std::int64_t most_groups_ = 0;  // that there are layouts for
  CudaFunction place_groups_;
  CudaFunction quantize_groups_;
  CudaFunction gate_groups_;
  CudaFunction scale_groups_;
};

}  // namespace moesaic
