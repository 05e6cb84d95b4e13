#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kernels/mlp_weights.h"
#include "kernels/packed_matrix.h"

namespace moesaic {

/// Narrow rows times a narrow matrix, as an adapter adds them: the sum of the product goes on with
/// these terms.
struct LowRank {
  MatrixView<float> inner{};  // [rows, rank]
  PackedMatrix matrix{};      // [n, rank]; in a transposed product [rank, k]; bf16 or f32
  /// If there is one, the product makes `inner` itself, from the rows that it packs anyway: scale
  /// times the input times this transposed; in a transposed product, times this.
  PackedMatrix projection{};  // [rank, k]; in a transposed product [n, rank]
  float scale = 1;

  /// Rows of `inner` from `first_row` on, of the input times `projection`.
  void set_inner(std::int64_t first_row, const MatrixView<const float>& products) const;
};

/// What happens to results before they leave the core, in this order, each if it is there. Row i of
/// the matrices belongs to row i of the product's input.
struct Epilogue {
  LowRank low_rank{};
  const float* bias = nullptr;       // [n], added
  MatrixView<const float> addend{};  // [rows, n], added
  MatrixView<float> keep{};          // [rows, n], where they are stored besides
};

/// Rows [first_row, first_row + num_rows) of a product's input, times one matrix.
struct GemmGroup {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  PackedMatrix weights{};  // [n, k]
  Epilogue epilogue{};
};

/// Rows of the input through one gated MLP: down(gating(gate(x), up(x))).
struct MlpGroup {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  MlpWeights weights{};
  Epilogue gate_epilogue{};  // before gating: a backward pass keeps gate and up
  Epilogue up_epilogue{};
  Epilogue down_epilogue{};
};

/// Where results go: row i of the input gives row i of the output, n elements.
struct GemmOutput {
  std::byte* data = nullptr;
  std::int64_t stride_bytes = 0;
  RowSource::Element element = RowSource::Element::f32;
};

/// What activations are rounded to before they meet matrices in nvfp4.
enum class Nvfp4Activations {
  bf16,  ///< W4A16
  nvfp4  ///< W4A4, as kernels/nvfp4_activations.h says
};

/// What a rank computes with: its instruction set's kernels and its threads.
struct Compute {
  Isa isa = Isa::scalar;
  const VectorKernels* vector = nullptr;
  ThreadPool* pool = nullptr;
  Nvfp4Activations nvfp4_activations = Nvfp4Activations::bf16;
  Int4Activations int4_activations = Int4Activations::bf16;  // allows_int8_groups() says where

  /// The kernel that has the format's decoder, whatever activations become.
  [[nodiscard]] const GemmKernel& gemm(Format format) const {
    return find_gemm_kernel(isa, format);
  }
  /// The kernel of products with matrices in this layout.
  [[nodiscard]] const GemmKernel& gemm(const Layout& layout) const {
    return allows_int8_groups(layout) ? find_gemm_kernel(isa, layout.format, int4_activations)
                                      : gemm(layout.format);
  }
};

/// Whether two matrices have their k in the same order.
[[nodiscard]] bool same_order(const PackedMatrix& a, const PackedMatrix& b) noexcept;

/// Whether a product with `weights` packs its rows as one with `projection` does, and so can make
/// LowRank::inner.
[[nodiscard]] bool can_project(const PackedMatrix& weights,
                               const PackedMatrix& projection) noexcept;

class GemmPlan;

/// Products of groups of rows with packed matrices, shared out over the threads of a Compute. Keeps
/// its scratch memory between calls; one object a rank, used by one caller at a time.
///
/// Work is cut into slabs of rows of one group, and a slab into jobs of some panels, so that a
/// group with many rows is shared by all threads as well as many groups with few. A job waits for
/// the jobs of its own slab that it builds on, and one that packs rows for the slab that was in its
/// place.
class GroupedGemm {
 public:
  explicit GroupedGemm(const Compute& compute);
  ~GroupedGemm();

  /// No two groups share a row; each has a layout of its own. Rows that no group names are not
  /// written. Throws Error{internal} for groups that do not fit the input, and for epilogues whose
  /// matrices do not fit the groups.
  void run(const RowSource& input, std::span<const GemmGroup> groups, const GemmOutput& output);

  /// The same for whole MLPs of one width. Inner activations are f32 until they are rounded to
  /// `input.element` for the second product.
  void run_mlp(const RowSource& input, std::span<const MlpGroup> groups, const Gating& gating,
               const GemmOutput& output);

  /// The first half of run_mlp alone, gating(gate(x), up(x)); the groups' down matrices are not
  /// read.
  void run_gated(const RowSource& input, std::span<const MlpGroup> groups, const Gating& gating,
                 const GemmOutput& output);

  /// Memory of packed rows and inner activations: that of a few slabs, however many rows there
  /// were.
  [[nodiscard]] std::int64_t scratch_bytes() const noexcept;

 private:
  void add_mlp_jobs();

  std::unique_ptr<GemmPlan> plan_;
  std::vector<std::size_t> slabs_;  // of the plan, for MLPs
};

}  // namespace moesaic
