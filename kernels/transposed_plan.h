#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/matrix_view.h"
#include "kernels/job_graph.h"
#include "kernels/transposed_gemm.h"
#include "kernels/transposed_panels.h"

namespace moesaic {

/// The jobs of transposed products, and what threads do in them. Keeps its memory between plans.
class TransposedPlan final : private JobGraph::Work {
 public:
  /// Rows of W of one piece of a deep product, as that with an output matrix: whole steps.
  static constexpr std::int64_t kPieceDepth = 2048;

  explicit TransposedPlan(const Compute& compute);

  /// As TransposedGemm::run(); the products fit each other and the output.
  void run(std::span<const TransposedProduct> products, const GemmOutput& output);
  [[nodiscard]] std::int64_t scratch_bytes() const noexcept { return graph_.packed_bytes(); }

 private:
  /// Rows [first_row, first_row + num_rows) of the inputs, all of one group; of a deep product a
  /// piece of their depth.
  struct Slab {
    std::size_t group = 0;
    const GemmKernel* kernel = nullptr;  // of the transposed panels
    std::int64_t first_row = 0;
    std::int64_t num_rows = 0;
    std::int64_t first_depth = 0;
    std::int64_t depth = 0;  // 0: all of it
    bool resume = false;     // sums go on from what the piece before has left in the output

    /// The rows of the group's matrix that it meets.
    [[nodiscard]] PackedMatrix part_of(const PackedMatrix& weights) const;
    /// Of a packed row of one input.
    [[nodiscard]] std::int64_t row_bytes(const GemmGroup& of) const;
    /// Of its packed rows of one input.
    [[nodiscard]] std::int64_t bytes(const GemmGroup& of) const;
  };

  /// What an adapter adds to a slab's results.
  struct Terms {
    const PackedMatrix* matrix = nullptr;
    Buffer<std::byte> rows;    // packed
    Buffer<std::byte> panels;  // transposed ones
  };

  /// Memory of one thread.
  struct Worker {
    Buffer<std::byte> panels;            // transposed ones
    Buffer<std::byte> scratch;           // of the kernel
    Buffer<float> results;               // [rows, k of a job]
    Buffer<float> scales;                // of W's rows
    Buffer<float> scaled;                // [kRowBlock, n] input rows
    std::vector<Terms> terms;            // [products]
    std::vector<PackedMatrix> matrices;  // transposed ones of terms
    std::vector<TileTerms> tile_terms;
  };

  /// Rows [first, first + count) of a slab of one of the inputs.
  struct PackedRows {
    const RowSource* input;
    const GemmGroup* group;
    const Slab* slab;
    std::int64_t first;
    std::int64_t count;
  };

  /// Packed rows of a slab, whether results go on from what is there, and terms for a kernel that
  /// takes some.
  struct Factor {
    const GemmKernel* kernel;
    const std::byte* rows;
    std::int64_t num_rows;
    bool resume;
    std::span<Terms> terms;
    StreamedRows streamed;  // by the kernel: results of the job
  };

  /// Results of k = first, first + 1, ...
  struct Results {
    std::int64_t first;
    MatrixView<float> values;  // [rows of the slab, k of a job]
  };

  [[nodiscard]] const GemmGroup& group_of(const Slab& slab) const {
    return products_.front().groups[slab.group];
  }
  [[nodiscard]] bool takes_pieces(const GemmGroup& group) const;
  void add_group(std::size_t index);
  void add_slab(const Slab& slab, std::ptrdiff_t continues);
  void add_jobs(std::size_t slab, std::int64_t even_share);
  void pack(const JobGraph::Job& job, int number) override;
  void pack_rows(const PackedRows& rows, std::byte* place, Worker& worker) const;
  void project(const PackedRows& rows, const std::byte* packed, Worker& worker) const;
  void scale(RowSource& block, Worker& worker, const std::byte** rows) const;
  void multiply(const JobGraph::Job& job, std::int64_t index, int number) override;
  void multiply_by(const PackedMatrix& matrix, const Factor& factor, const JobGraph::Job& job,
                   Worker& worker) const;
  void add_terms(std::span<const Terms> terms, const JobGraph::Job& job, Worker& worker) const;
  [[nodiscard]] PackedMatrix transpose(const PackedMatrix& matrix, std::int64_t first,
                                       std::int64_t count, Buffer<std::byte>& panels) const;
  [[nodiscard]] std::span<Terms> pack_terms(const Slab& slab, Worker& worker) const;
  [[nodiscard]] float* result_row(const Slab& slab, std::int64_t row) const;
  [[nodiscard]] Results results_of(const JobGraph::Job& job, const Worker& worker) const;
  void load_sums(const Slab& slab, const Results& results) const;
  void store_results(const Slab& slab, const Results& results) const;
  [[nodiscard]] StreamedRows streamed_rows(const Slab& slab, const Results& results) const;
  void store(const Slab& slab, std::int64_t row, const Results& results) const;
  void add_to(const Slab& slab, std::int64_t row, const Results& results) const;

  Compute compute_;
  const TransposeLoops* loops_;
  std::span<const TransposedProduct> products_;
  const GemmOutput* output_ = nullptr;
  std::int64_t output_bytes_ = 0;  // of all results
  std::vector<Slab> slabs_;        // as the graph has them
  JobGraph graph_;
  std::vector<Worker> workers_;
};

}  // namespace moesaic
