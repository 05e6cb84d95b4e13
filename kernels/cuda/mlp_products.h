#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/device.h"
#include "kernels/cuda/choice_plan.h"
#include "kernels/cuda/grouped_mlps.h"
#include "kernels/cuda/mlp_arguments.h"
#include "kernels/cuda/mlp_tiles.h"
#include "kernels/cuda/row_rounding.h"
#include "kernels/grouped_gemm.h"
#include "kernels/mlp_weights.h"
#include "kernels/vector_kernels.h"

namespace moesaic {

/// The modules that were built: machine code for the chips and PTX. Empty without a CUDA toolkit.
[[nodiscard]] std::span<const DeviceImage> device_images() noexcept;
/// The version of the CUDA compiler that made them, "13.0.88"; empty without one.
[[nodiscard]] std::string_view device_toolkit() noexcept;
/// Whether kernels for matrices in this layout were built.
[[nodiscard]] bool has_device_kernels(const Layout& layout) noexcept;

/// Which kernels multiply on a GPU.
enum class DeviceKernels {
  portable,  ///< the tile order, on CUDA cores: the bytes of every CPU
  mma,       ///< tensor cores: bits of their own (docs/numerics.md)
  cutlass    ///< of sm_100 and sm_103, by a library: rows and weights in nvfp4, bits of their own
};

/// "portable", "mma" or, where both factors are in nvfp4, "block_scaled"; "cutlass".
[[nodiscard]] std::string_view kernels_name(DeviceKernels kernels, Nvfp4Activations activations,
                                            Format format = Format::nvfp4) noexcept;

/// Memory of passes, which objects that run one after the other on one GPU share.
struct DeviceScratch {
  PinnedBuffer host_tiles;  // MlpTile
  DeviceBuffer tiles;
  DeviceBuffer inner;
  DeviceBuffer rounded;  // of x, then of inner: activations in nvfp4; of cutlass all that it needs
};
/// Bytes of `rounded` for a row of so many elements, whichever kernels read it.
[[nodiscard]] std::int64_t rounded_row_bytes(std::int64_t depth) noexcept;

/// What a matrix needs to be multiplied on a GPU; empty if it has all, else what is missing:
/// "GPUs have no kernels for int8".
[[nodiscard]] std::string missing_on_device(const PackedMatrix& matrix);

/// Why a GPU cannot multiply matrices in this layout by such activations; empty if it can. Tensor
/// cores of sm_120 and sm_121 take both in nvfp4, by cutlass those of sm_100 and sm_103; portable
/// kernels take activations that are rounded to it on any chip.
[[nodiscard]] std::string missing_on_chip(const DeviceInfo& device, const Layout& layout,
                                          DeviceKernels kernels, Nvfp4Activations activations);

/// Gated MLPs of one size and layout on a GPU: down(gating(gate(x), up(x))), rows in bf16, results
/// in f32, gated activations rounded to bf16 between.
class DeviceMlps {
 public:
  struct Setup {
    Device& device;
    DeviceScratch& scratch;  // outlives this
    DeviceKernels kernels = DeviceKernels::mma;
    Gating gating{};
    /// Of matrices in nvfp4: x and the gated activations are rounded on the GPU.
    Nvfp4Activations nvfp4_activations = Nvfp4Activations::bf16;
    const GroupedLibrary* library = nullptr;  // of cutlass, which takes activations in nvfp4 alone
  };
  /// `mlps`: their panels are addresses of the device's memory, which stay; at least one. For
  /// cutlass what is there is put in an order of its own, so that it serves nothing else from then
  /// on. Throws Error{usage} for matrices that there are no kernels for.
  DeviceMlps(const Setup& setup, std::span<const MlpWeights> mlps);

  /// Where a pass finds its rows and puts its results, in device memory.
  struct Pass {
    CudaAddress x = 0;  // [inputs, hidden] bf16; of start_down() [rows, width]
    std::int64_t num_inputs = 0;
    CudaAddress row_indices = 0;  // [rows] int32: the input of each row
    std::int64_t num_rows = 0;
    CudaAddress y = 0;  // [rows, hidden] f32
  };
  /// Of the scratch memory, for passes of so many rows: else it grows as passes do.
  void make_room(std::int64_t num_rows, std::int64_t num_inputs);
  /// Asks for the pass; it has happened when the device's next mark is reached, and not before is
  /// the scratch memory free for another one. No two groups share a row.
  void start(const Pass& pass, std::span<const DeviceRows> groups);
  /// The second half of it alone, y = x down^T: one product for each group.
  void start_down(const Pass& pass, std::span<const DeviceRows> groups);

  /// A pass that the GPU has planned itself (choice_plan.h), in memory that stays where it is: of
  /// its inputs and rows as many are there as can become.
  struct Planned {
    Pass pass;
    cuda::TileKinds kinds{};
    CudaAddress tiles = 0;       // as `kinds` says
    CudaAddress num_inputs = 0;  // int32: those that there are
    CudaAddress num_rows = 0;
    CudaAddress inner = 0;    // [rows, width] bf16
    CudaAddress rounded = 0;  // as DeviceScratch has it
  };
  /// Asks for it, with launches that are the same for any plan.
  void start(const Planned& planned);

  [[nodiscard]] std::int64_t hidden() const noexcept { return hidden_; }
  [[nodiscard]] std::int64_t width() const noexcept { return width_; }
  /// Of tiles, for which to plan (mlp_tiles.h).
  [[nodiscard]] std::span<const int> tile_sizes() const noexcept { return sizes_; }

 private:
  /// The kernels of a shape, and their tiles.
  struct Kind {
    cuda::TileShape shape{};
    CudaFunction gate_up = nullptr;
    CudaFunction down = nullptr;
    std::int64_t first_tile = 0;
    std::int64_t num_tiles = 0;
  };
  /// What kernels read in the place of rows.
  struct ReadRows {
    CudaAddress rows = 0;
    CudaAddress scales = 0;  // of records
  };
  void upload(std::span<const MlpWeights> mlps);
  void use_library(const Setup& setup, std::span<const MlpWeights> mlps);
  void add_kinds(DeviceKernels kernels, const std::string& module);
  void add_kind(std::string_view module, const cuda::TileShape& shape, const std::string& suffix);
  void make_tiles(std::span<const DeviceRows> groups);
  /// `rounded`: memory for what they become.
  [[nodiscard]] ReadRows read_rows(const DeviceRowRounding::Rows& rows, CudaAddress rounded);
  void launch_gate_up(cuda::MlpArguments& arguments, const DeviceRowRounding::Rows& x,
                      CudaAddress rounded);
  void launch_down(cuda::MlpArguments& arguments, const DeviceRowRounding::Rows& inner,
                   CudaAddress rounded);
  [[nodiscard]] GroupedMlps::Pass grouped_pass(const Pass& pass) const;
  [[nodiscard]] cuda::MlpArguments arguments_of(const Pass& pass) const;
  void launch(const Kind& kind, CudaFunction kernel, std::int64_t blocks,
              const cuda::MlpArguments& arguments);

  Device& device_;
  Gating gating_;
  cuda::PanelForm form_;
  std::int64_t hidden_;
  std::int64_t width_;
  float x_scale_;  // PackedMatrix::input_scale
  float inner_scale_;
  std::vector<Kind> kinds_;  // by ascending rows
  std::vector<int> sizes_;   // the rows of each
  DeviceBuffer mlps_;        // MlpMatrices
  DeviceScratch& scratch_;
  bool reads_records_ = false;
  std::optional<DeviceRowRounding> rounding_;  // of activations in nvfp4
  std::optional<GroupedMlps> grouped_;         // then there is none of these
};

}  // namespace moesaic
