#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "kernels/grouped_gemm.h"
#include "kernels/job_counters.h"

namespace moesaic {

/// The jobs of some products, and how threads do them: GroupedGemm says what is to be multiplied,
/// and in which order. Keeps its memory between plans.
class GemmPlan {
 public:
  /// Rows of one slab: their packed form and a few panels stay in a core's L2 cache together.
  static constexpr std::int64_t kSlabRows = 256;

  /// One product of a group: what its slabs have in common.
  struct Product {
    const RowSource* input;
    GemmOutput output;
    PackedMatrix weights;
    PackedMatrix up{};  // if panels != nullptr, results are gated with those of this matrix
    const float* bias = nullptr;
    const float* up_bias = nullptr;
    const GemmKernel* kernel = nullptr;  // set by add_product, as the next
    std::int64_t job_panels = 0;
  };

  explicit GemmPlan(const Compute& compute);

  void begin(std::size_t num_products);
  /// A product whose matrix all products together have `all_panels` panels for.
  void add_product(Product product, std::int64_t all_panels);
  /// Rows of the product that was added last; `after` is the slab whose results are their input.
  std::size_t add_slab(std::int64_t first_row, std::int64_t num_rows, std::ptrdiff_t after = -1);
  /// Jobs begin in the order in which they are added; those that a job waits for come before it.
  void add_pack_jobs(std::size_t slab);
  void add_multiply_jobs(std::size_t slab);
  void execute(const Gating& gating);

  /// Where the inner activations of MLPs lie: [num_rows, width].
  GemmOutput inner_output(std::int64_t num_rows, std::int64_t width, RowSource::Element element);
  [[nodiscard]] const std::byte* const* inner_rows() const { return inner_rows_.data(); }

 private:
  /// Some rows of a product.
  struct Slab {
    std::size_t product;
    std::int64_t first_row;  // in input and output
    std::int64_t num_rows;
    std::int64_t packed_offset;
    std::ptrdiff_t after;  // the slab whose results are this one's input, or -1
  };

  /// Rows [first, first + count) of a slab to pack, or panels to multiply by.
  struct Job {
    enum class Kind { pack, multiply };
    Kind kind;
    std::size_t slab;
    std::int64_t first;
    std::int64_t count;
  };

  /// Memory of one thread.
  struct Worker {
    Buffer<float> results;           // [rows, panels * 16], twice if gated
    Buffer<std::byte> scratch;       // of kernels
    std::vector<std::byte> ordered;  // kRowBlock rows in the order of a matrix's k
    std::vector<float> rounded;      // kRowBlock rows in nvfp4
  };

  static void gather(const RowSource& block, const std::int32_t* order, Worker& worker,
                     const std::byte** rows);
  static void round_block(RowSource& block, Worker& worker, const std::byte** rows);
  void prefetch_weights(std::int64_t index) const;
  [[nodiscard]] std::byte* packed_row(const Slab& slab, std::int64_t row);
  void pack(const Job& job, Worker& worker);
  void multiply(const Job& job, const Gating& gating, Worker& worker);
  void finish(const Job& job, const Gating& gating, Worker& worker) const;

  Compute compute_;
  std::vector<Product> products_;
  std::vector<Slab> slabs_;
  std::vector<Job> jobs_;
  JobCounters to_pack_;      // pack jobs of each slab that are not done
  JobCounters to_multiply_;  // multiply jobs
  std::int64_t packed_bytes_ = 0;
  Buffer<std::byte> packed_rows_;
  Buffer<std::byte> inner_;
  std::vector<const std::byte*> inner_rows_;
  std::vector<Worker> workers_;
};

}  // namespace moesaic
