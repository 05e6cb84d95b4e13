#include "kernels/transposed_gemm.h"

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "kernels/job_graph.h"
#include "kernels/transposed_panels.h"
#include "kernels/weight_format.h"

namespace moesaic {
namespace {

/// Rows of a job: their packed form stays in the L2 cache.
constexpr std::int64_t kSlabRows = 256;
/// Input rows that are scaled and packed by one job.
constexpr std::int64_t kPackRows = kRowBlock;

/// Rows [first_row, first_row + num_rows) of the input, all of one group.
struct Slab {
  const GemmGroup* group;
  const GemmKernel* kernel;   // of the forward product: decodes
  const GemmKernel* product;  // of the transposed panels
  std::int64_t first_row;
  std::int64_t num_rows;

  [[nodiscard]] std::int64_t row_bytes() const {
    return static_cast<std::int64_t>(product->packed_row_bytes(group->weights.rows));
  }
};

struct Worker {
  Buffer<std::byte> panels;   // two transposed ones
  Buffer<std::byte> scratch;  // of the kernel
  Buffer<float> values;       // scaled input rows, or results
};

void check_group(const RowSource& input, const GemmGroup& group) {
  require(group.weights.rows == input.depth && group.first_row >= 0 && group.num_rows >= 0 &&
              group.first_row + group.num_rows <= input.num_rows && group.epilogue.bias == nullptr,
          ErrorKind::internal,
          "a transposed product of rows {} to {} of {}, depth {}, with a {} matrix {} x {}",
          group.first_row, group.first_row + group.num_rows, input.num_rows, input.depth,
          format_name(group.weights.layout.format), group.weights.rows, group.weights.depth);
}

float element(const RowSource& input, std::int64_t row, std::int64_t index) {
  const std::byte* from = input.rows[row];
  return input.element == RowSource::Element::f32
             ? reinterpret_cast<const float*>(from)[index]
             : to_float(reinterpret_cast<const BFloat16*>(from)[index]);
}

}  // namespace

class TransposedGemm::Plan final : private JobGraph::Work {
 public:
  explicit Plan(const Compute& compute)
      : compute_(compute), workers_(static_cast<std::size_t>(compute.pool->size())) {}

  void run(const RowSource& input, std::span<const GemmGroup> groups, const GemmOutput& output) {
    slabs_.clear();
    graph_.begin();
    input_ = &input;
    output_ = &output;
    for (const GemmGroup& group : groups) {
      check_group(input, group);
      for (std::int64_t row = 0; row < group.num_rows; row += kSlabRows) {
        add_slab(group, row, std::min(kSlabRows, group.num_rows - row));
      }
    }
    graph_.run(*compute_.pool, *this);
  }

 private:
  void add_slab(const GemmGroup& group, std::int64_t first, std::int64_t rows) {
    const Format format = group.weights.layout.format;
    const GemmKernel& product = compute_.gemm(format == Format::f32 ? Format::f32 : Format::bf16);
    const Slab& slab = slabs_.emplace_back(
        Slab{&group, &compute_.gemm(format), &product, group.first_row + first, rows});
    const std::size_t index = graph_.add_slab({.bytes = rows * slab.row_bytes()});
    graph_.add_pack_jobs(index, {rows, kPackRows});
    graph_.add_multiply_jobs(index, {step_count(Format::bf16, group.weights.depth), 1});
  }

  void pack(const JobGraph::Job& job, int number) override {
    const RowSource& input = *input_;
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    const Slab& slab = slabs_[job.slab];
    const PackedMatrix& weights = slab.group->weights;
    const std::int64_t rows = std::min(kPackRows, slab.num_rows - job.first);
    worker.values.reserve(kPackRows * weights.rows);
    const std::byte* pointers[kPackRows];
    for (std::int64_t row = 0; row < rows; ++row) {
      float* const values = worker.values.data() + row * weights.rows;
      pointers[row] = reinterpret_cast<const std::byte*>(values);
      for (std::int64_t n = 0; n < weights.rows; ++n) {
        values[n] = element(input, slab.first_row + job.first + row, n) * column_scale(weights, n);
      }
    }
    slab.product->pack_rows({.rows = pointers, .num_rows = rows, .depth = weights.rows},
                            graph_.place(job.slab) + job.first * slab.row_bytes());
  }

  void multiply(const JobGraph::Job& job, std::int64_t, int number) override {
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    const Slab& slab = slabs_[job.slab];
    const PackedMatrix& weights = slab.group->weights;
    worker.panels.reserve(2 * transposed_panel_bytes(weights));
    worker.scratch.reserve(slab.product->scratch_bytes);
    worker.values.reserve(kSlabRows * kTransposedDepth);
    transpose_step(*slab.kernel, weights, job.first, worker.panels.data());
    const PackedMatrix transposed{.layout = {.format = slab.product->format},
                                  .rows = kTransposedDepth,
                                  .depth = weights.rows,
                                  .panels = worker.panels.data()};
    slab.product->tile({.packed_rows = graph_.place(job.slab),
                        .num_rows = slab.num_rows,
                        .matrix = &transposed,
                        .first_panel = 0,
                        .num_panels = 2,
                        .out = worker.values.data(),
                        .out_stride = kTransposedDepth,
                        .scratch = worker.scratch.data()});
    for (std::int64_t row = 0; row < slab.num_rows; ++row) {
      store(*output_, slab, job.first, row, worker.values.data() + row * kTransposedDepth);
    }
  }

  /// Results of k = 32 step .. 32 step + 31, each where the input has that k.
  void store(const GemmOutput& output, const Slab& slab, std::int64_t step, std::int64_t row,
             const float* values) const {
    const PackedMatrix& weights = slab.group->weights;
    std::byte* const out = output.data + (slab.first_row + row) * output.stride_bytes;
    const std::int64_t first = step * kTransposedDepth;
    for (std::int64_t k = first; k < std::min(weights.depth, first + kTransposedDepth); ++k) {
      const std::int64_t to = weights.order != nullptr ? weights.order[k] : k;
      if (output.element == RowSource::Element::f32) {
        reinterpret_cast<float*>(out)[to] = values[k - first];
      } else {
        reinterpret_cast<BFloat16*>(out)[to] = to_bfloat16(values[k - first]);
      }
    }
  }

  Compute compute_;
  const RowSource* input_ = nullptr;
  const GemmOutput* output_ = nullptr;
  std::vector<Slab> slabs_;  // as the graph has them
  JobGraph graph_;
  std::vector<Worker> workers_;
};

TransposedGemm::TransposedGemm(const Compute& compute) : plan_(std::make_unique<Plan>(compute)) {}

TransposedGemm::~TransposedGemm() = default;

void TransposedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                         const GemmOutput& output) {
  plan_->run(input, groups, output);
}

}  // namespace moesaic
