#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/packed_matrix.h"
#include "src/base/buffer.h"
#include "src/base/thread_pool.h"

namespace moesaic {

/// Rows [first_row, first_row + num_rows) of a product's input, times one matrix. In a gated group
/// the rows also meet `up`, and silu(x weights^T) * (x up^T) is the result.
struct GemmGroup {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  PackedMatrix weights{};       // [n, k]; the gate of a gated group
  PackedMatrix up{};            // [n, k], or panels == nullptr
  const float* bias = nullptr;  // [n] added to the result of an ungated group, or null
};

/// Where results go: row i of the input gives row i of the output, n elements.
struct GemmOutput {
  std::byte* data = nullptr;
  std::int64_t stride_bytes = 0;
  RowSource::Element element = RowSource::Element::f32;
};

/// What a rank computes with: its instruction set's kernels and its threads.
struct Compute {
  Isa isa = Isa::scalar;
  const VectorKernels* vector = nullptr;
  ThreadPool* pool = nullptr;

  [[nodiscard]] const GemmKernel& gemm(Format format) const {
    return find_gemm_kernel(isa, format);
  }
};

/// Products of groups of rows with packed matrices, shared out over the threads of a Compute. Keeps
/// its scratch memory between calls; one object a rank, used by one caller at a time.
class GroupedGemm {
 public:
  explicit GroupedGemm(const Compute& compute);
  ~GroupedGemm();

  /// All groups have the same depth and format, and no two share a row. Rows that no group names
  /// are not written. Throws Error{internal} for groups that do not fit the input or each other.
  void run(const RowSource& input, std::span<const GemmGroup> groups, const GemmOutput& output);

 private:
  struct Task {
    const GemmGroup* group = nullptr;
    std::int64_t first_row = 0;
    std::int64_t num_rows = 0;
    std::int64_t first_panel = 0;
    std::int64_t num_panels = 0;
  };
  struct Call;

  void pack(const RowSource& input, const GemmKernel& kernel);
  void plan(std::span<const GemmGroup> groups, std::int64_t panel_bytes);
  void run_task(const Call& call, const Task& task, Buffer<float>& scratch) const;

  Compute compute_;
  Buffer<std::byte> packed_rows_;
  std::vector<Buffer<float>> scratch_;  // one a worker
  std::vector<Task> tasks_;
};

}  // namespace moesaic
