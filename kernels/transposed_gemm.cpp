#include "kernels/transposed_gemm.h"

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "kernels/job_counters.h"
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
  std::int64_t packed_offset;
};

struct Job {
  enum class Kind { pack, multiply };
  Kind kind;
  std::size_t slab;
  std::int64_t first;  // row of the slab, or step of 32 k
};

struct Worker {
  Buffer<std::byte> panels;   // two transposed ones
  Buffer<std::byte> scratch;  // of the kernel
  Buffer<float> values;       // scaled input rows, or results
};

void check_group(const RowSource& input, const GemmGroup& group) {
  require(group.weights.rows == input.depth && group.first_row >= 0 && group.num_rows >= 0 &&
              group.first_row + group.num_rows <= input.num_rows && group.bias == nullptr,
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

class TransposedGemm::Plan {
 public:
  explicit Plan(const Compute& compute)
      : compute_(compute), workers_(static_cast<std::size_t>(compute.pool->size())) {}

  void run(const RowSource& input, std::span<const GemmGroup> groups, const GemmOutput& output) {
    slabs_.clear();
    jobs_.clear();
    packed_bytes_ = 0;
    for (const GemmGroup& group : groups) {
      check_group(input, group);
      for (std::int64_t row = 0; row < group.num_rows; row += kSlabRows) {
        add_slab(group, row, std::min(kSlabRows, group.num_rows - row));
      }
    }
    packed_rows_.reserve(packed_bytes_);
    to_pack_.reset(slabs_.size());
    for (const Job& job : jobs_) {
      if (job.kind == Job::Kind::pack) to_pack_.add(job.slab);
    }
    compute_.pool->parallel_for(std::ssize(jobs_), [&](std::int64_t index, int worker) {
      const Job& job = jobs_[static_cast<std::size_t>(index)];
      Worker& own = workers_[static_cast<std::size_t>(worker)];
      job.kind == Job::Kind::pack ? pack(job, input, own) : multiply(job, output, own);
    });
  }

 private:
  void add_slab(const GemmGroup& group, std::int64_t first, std::int64_t rows) {
    const Format format = group.weights.layout.format;
    const GemmKernel& product = compute_.gemm(format == Format::f32 ? Format::f32 : Format::bf16);
    const std::size_t slab = slabs_.size();
    slabs_.push_back(
        {&group, &compute_.gemm(format), &product, group.first_row + first, rows, packed_bytes_});
    packed_bytes_ += rows * static_cast<std::int64_t>(product.packed_row_bytes(group.weights.rows));
    for (std::int64_t row = 0; row < rows; row += kPackRows) {
      jobs_.push_back({Job::Kind::pack, slab, row});
    }
    const std::int64_t steps = round_up(group.weights.depth, kTransposedDepth) / kTransposedDepth;
    for (std::int64_t step = 0; step < steps; ++step) {
      jobs_.push_back({Job::Kind::multiply, slab, step});
    }
  }

  [[nodiscard]] std::byte* packed_row(const Slab& slab, std::int64_t row) {
    return packed_rows_.data() + slab.packed_offset +
           row *
               static_cast<std::int64_t>(slab.product->packed_row_bytes(slab.group->weights.rows));
  }

  void pack(const Job& job, const RowSource& input, Worker& worker) {
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
                            packed_row(slab, job.first));
    to_pack_.done(job.slab);
  }

  void multiply(const Job& job, const GemmOutput& output, Worker& worker) {
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
    to_pack_.wait(job.slab);
    slab.product->tile({.packed_rows = packed_row(slab, 0),
                        .num_rows = slab.num_rows,
                        .matrix = &transposed,
                        .first_panel = 0,
                        .num_panels = 2,
                        .out = worker.values.data(),
                        .out_stride = kTransposedDepth,
                        .scratch = worker.scratch.data()});
    for (std::int64_t row = 0; row < slab.num_rows; ++row) {
      store(output, slab, job.first, row, worker.values.data() + row * kTransposedDepth);
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
  std::vector<Slab> slabs_;
  std::vector<Job> jobs_;
  JobCounters to_pack_;
  std::int64_t packed_bytes_ = 0;
  Buffer<std::byte> packed_rows_;
  std::vector<Worker> workers_;
};

TransposedGemm::TransposedGemm(const Compute& compute) : plan_(std::make_unique<Plan>(compute)) {}

TransposedGemm::~TransposedGemm() = default;

void TransposedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                         const GemmOutput& output) {
  plan_->run(input, groups, output);
}

}  // namespace moesaic
