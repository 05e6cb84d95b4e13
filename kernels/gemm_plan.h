#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "kernels/cpu/transpose_loops.h"
#include "kernels/grouped_gemm.h"
#include "kernels/job_graph.h"

namespace moesaic {

/// The jobs of some products, and what threads do in them: GroupedGemm says what is to be
/// multiplied, and in which order. Keeps its memory between plans.
class GemmPlan final : private JobGraph::Work {
 public:
  /// One product of a group: what its slabs have in common.
  struct Product {
    const RowSource* input;  // of slabs whose input no other slab makes
    GemmOutput output;       // of slabs whose results no other slab reads
    PackedMatrix weights;
    PackedMatrix up{};  // if panels != nullptr, results are gated with those of this matrix
    Epilogue epilogue{};
    Epilogue up_epilogue{};
    const GemmKernel* kernel = nullptr;  // set by add_product, as the next
    std::int64_t job_panels = 0;         // at most
  };

  /// Of a job at most: its rows times its panels, which are few where there are many rows, so that
  /// results stay near.
  static constexpr std::int64_t kMaxJobRowPanels = 8 * JobGraph::kSlabRows;

  /// Jobs that a slab of so many rows has at least for a matrix of so many: it grows with both.
  [[nodiscard]] static double least_jobs(std::int64_t rows, std::int64_t matrix_rows) {
    return std::max(1.0, static_cast<double>(rows * panel_count(matrix_rows)) / kMaxJobRowPanels);
  }

  explicit GemmPlan(const Compute& compute);

  void begin(std::size_t num_products);
  /// A product whose matrix all products together have `all_panels` panels for.
  void add_product(Product product, std::int64_t all_panels);
  /// Rows of the product that was added last. Its results go to the product's output.
  std::size_t add_slab(std::int64_t first_row, std::int64_t num_rows);
  /// The same, but the results, of this form, stay with the slab until another one reads them.
  std::size_t add_inner_slab(std::int64_t first_row, std::int64_t num_rows,
                             RowSource::Element element);
  /// Rows of the product that was added last whose input are the results of an inner slab.
  std::size_t add_outer_slab(std::size_t inner);
  /// Jobs begin in the order in which they are added; those that a job waits for come before it.
  void add_pack_jobs(std::size_t slab);
  void add_multiply_jobs(std::size_t slab);
  /// Both, as JobGraph::add_in_turn().
  void add_in_turn(std::size_t slab);
  void execute(const Gating& gating);
  /// Of all packed rows and inner results, as far as they are kept.
  [[nodiscard]] std::int64_t scratch_bytes() const noexcept { return graph_.packed_bytes(); }

 private:
  /// Some rows of a product.
  struct Slab {
    std::size_t product = 0;
    std::int64_t first_row = 0;  // in input and output
    std::int64_t num_rows = 0;
    std::int64_t packed_bytes = 0;
    std::ptrdiff_t inner = -1;  // whose results are the input
    bool is_inner = false;
    RowSource::Element element = RowSource::Element::f32;  // of results that stay with the slab
  };

  /// Memory of one thread.
  struct Worker {
    Buffer<float> results;           // [rows, panels * 16], twice if gated
    Buffer<std::byte> scratch;       // of kernels
    std::vector<std::byte> ordered;  // kRowBlock rows in the order of a matrix's k
    std::vector<float> rounded;      // kRowBlock rows in nvfp4
    Buffer<std::byte> low_rank;      // packed rows of one
  };

  static void gather(const RowSource& block, const std::int32_t* order, Worker& worker,
                     const std::byte** rows);
  static void round_block(RowSource& block, float input_scale, Worker& worker,
                          const std::byte** rows);
  void prefetch_weights(std::int64_t index) const;
  std::size_t add(const Slab& slab);
  [[nodiscard]] JobGraph::Split rows_to_pack(std::size_t slab) const;
  [[nodiscard]] JobGraph::Split panels_to_multiply(std::size_t slab) const;
  [[nodiscard]] GemmOutput inner_results(std::size_t slab) const;
  [[nodiscard]] GemmOutput results_of(std::size_t slab) const;
  [[nodiscard]] RowSource input_block(const Slab& slab, std::int64_t row,
                                      const std::byte** rows) const;
  void pack(const JobGraph::Job& job, int worker) override;
  void project(const LowRank& low_rank, const JobGraph::Job& job, Worker& worker) const;
  void multiply(const JobGraph::Job& job, std::int64_t index, int worker) override;
  void multiply_by(TileArgs args, const LowRank& low_rank, const Slab& slab, Worker& worker) const;
  [[nodiscard]] std::int64_t columns_of(const JobGraph::Job& job) const;
  [[nodiscard]] StreamedRows streamed_results(const JobGraph::Job& job) const;
  [[nodiscard]] StreamedRows streamed_keep(const JobGraph::Job& job,
                                           const MatrixView<float>& kept) const;
  [[nodiscard]] StreamedRows streamed_by_kernel(const JobGraph::Job& job,
                                                const Epilogue& epilogue) const;
  void finish(const JobGraph::Job& job, Worker& worker) const;
  void apply(const JobGraph::Job& job, const Epilogue& epilogue,
             const MatrixView<float>& results) const;

  Compute compute_;
  const TransposeLoops* loops_;
  Gating gating_;
  std::vector<Product> products_;
  std::vector<Slab> slabs_;        // as the graph has them
  std::int64_t output_bytes_ = 0;  // of results that no slab keeps
  JobGraph graph_;
  std::vector<Worker> workers_;
};

}  // namespace moesaic
