#include "kernels/transposed_gemm.h"

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "kernels/job_graph.h"
#include "kernels/pack_float_rows.h"
#include "kernels/transposed_panels.h"

namespace moesaic {
namespace {

/// Rows of a slab: their packed form stays in the L2 cache.
constexpr std::int64_t kSlabRows = 256;
/// Input rows that are scaled and packed by one job.
constexpr std::int64_t kPackRows = 4 * kRowBlock;
/// Transposed panels of one job, which stay in the L2 cache beside the rows.
constexpr std::int64_t kPanelBytes = std::int64_t{1} << 19;
/// About this many jobs a thread even out what neighbours on the machine take away.
constexpr std::int64_t kJobsPerThread = 8;

/// Rows [first_row, first_row + num_rows) of the input, all of one group.
struct Slab {
  const GemmGroup* group;
  const GemmKernel* product;  // of the transposed panels
  std::int64_t first_row;
  std::int64_t num_rows;

  [[nodiscard]] std::int64_t row_bytes() const {
    return static_cast<std::int64_t>(product->packed_row_bytes(group->weights.rows));
  }
};

/// Memory of one thread.
struct Worker {
  Buffer<std::byte> panels;   // transposed ones
  Buffer<std::byte> scratch;  // of the kernel
  Buffer<float> results;      // [rows, k of a job]
  Buffer<float> scales;       // of W's rows
  Buffer<float> scaled;       // [kRowBlock, n] input rows
  Buffer<std::byte> low_rank_rows;
  Buffer<std::byte> low_rank_panels;
};

/// Rows that go on with a narrow matrix: its columns are those of W as they are, not in an order.
void check_low_rank(const GemmGroup& group) {
  const LowRank& low_rank = group.epilogue.low_rank;
  if (low_rank.matrix.panels == nullptr) return;
  require(low_rank.matrix.depth == group.weights.depth && group.weights.order == nullptr &&
              low_rank.inner.cols() == low_rank.matrix.rows &&
              low_rank.inner.rows() >= group.first_row + group.num_rows,
          ErrorKind::internal,
          "a transposed product with {} columns goes on with {} x {} times a matrix {} x {}",
          group.weights.depth, low_rank.inner.rows(), low_rank.inner.cols(), low_rank.matrix.rows,
          low_rank.matrix.depth);
}

void check_group(const RowSource& input, const GemmGroup& group) {
  const MatrixView<const float>& addend = group.epilogue.addend;
  const bool has_sum =
      addend.data() == nullptr ||
      (addend.cols() == group.weights.depth && addend.rows() >= group.first_row + group.num_rows);
  require(has_sum && group.epilogue.bias == nullptr && group.epilogue.keep.data() == nullptr,
          ErrorKind::internal, "a transposed product with {} columns and an addend of {} x {}",
          group.weights.depth, addend.rows(), addend.cols());
  require(group.weights.rows == input.depth && group.first_row >= 0 && group.num_rows >= 0 &&
              group.first_row + group.num_rows <= input.num_rows,
          ErrorKind::internal,
          "a transposed product of rows {} to {} of {}, depth {}, with a {} matrix {} x {}",
          group.first_row, group.first_row + group.num_rows, input.num_rows, input.depth,
          format_name(group.weights.layout.format), group.weights.rows, group.weights.depth);
}

std::int64_t num_steps(const PackedMatrix& weights) {
  return step_count(Format::bf16, weights.depth);
}

}  // namespace

class TransposedGemm::Plan final : private JobGraph::Work {
 public:
  explicit Plan(const Compute& compute)
      : compute_(compute),
        loops_(&find_transpose_loops(compute.isa)),
        workers_(static_cast<std::size_t>(compute.pool->size())) {}

  void run(const RowSource& input, std::span<const GemmGroup> groups, const GemmOutput& output) {
    slabs_.clear();
    graph_.begin();
    input_ = &input;
    output_ = &output;
    std::int64_t all_steps = 0;  // times slabs
    for (const GemmGroup& group : groups) {
      check_group(input, group);
      check_low_rank(group);
      all_steps += num_steps(group.weights) * ((group.num_rows + kSlabRows - 1) / kSlabRows);
      for (std::int64_t row = 0; row < group.num_rows; row += kSlabRows) {
        add_slab(group, row, std::min(kSlabRows, group.num_rows - row));
      }
    }
    for (std::size_t i = 0; i < slabs_.size(); ++i) {
      if (i == 0) add_pack_jobs(i);
      if (i + 1 < slabs_.size()) add_pack_jobs(i + 1);  // before it is waited for
      add_multiply_jobs(i, all_steps / (kJobsPerThread * compute_.pool->size()));
    }
    graph_.run(*compute_.pool, *this);
  }

 private:
  void add_slab(const GemmGroup& group, std::int64_t first, std::int64_t rows) {
    const bool is_f32 = group.weights.layout.format == Format::f32;
    const GemmKernel& product = compute_.gemm(is_f32 ? Format::f32 : Format::bf16);
    slabs_.push_back({&group, &product, group.first_row + first, rows});
    graph_.add_slab({.bytes = rows * slabs_.back().row_bytes()});
  }

  void add_pack_jobs(std::size_t slab) {
    graph_.add_pack_jobs(slab, {slabs_[slab].num_rows, kPackRows});
  }

  void add_multiply_jobs(std::size_t slab, std::int64_t even_share) {
    const PackedMatrix& weights = slabs_[slab].group->weights;
    const std::int64_t most =
        std::min(even_share, kPanelBytes / (2 * transposed_panel_bytes(weights)));
    std::int64_t steps = kTransposedSteps;
    while (steps > 1 && steps > most) steps /= 2;
    graph_.add_multiply_jobs(slab, {num_steps(weights), steps});
  }

  void pack(const JobGraph::Job& job, int number) override {
    const Slab& slab = slabs_[job.slab];
    const PackedMatrix& weights = slab.group->weights;
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    const bool scaled = has_row_scales(weights);
    if (scaled) {
      worker.scales.reserve(weights.rows);
      worker.scaled.reserve(kRowBlock * weights.rows);
      load_row_scales(weights, worker.scales.data());
    }
    const std::byte* rows[kRowBlock];
    for (std::int64_t row = job.first; row < job.first + job.count; row += kRowBlock) {
      RowSource block = *input_;
      block.rows += slab.first_row + row;
      block.num_rows = std::min(kRowBlock, job.first + job.count - row);
      if (scaled) scale(block, worker, rows);
      slab.product->pack_rows(block, graph_.place(job.slab) + row * slab.row_bytes());
    }
  }

  /// A block of rows times the scales of W's rows.
  void scale(RowSource& block, Worker& worker, const std::byte** rows) const {
    for (std::int64_t row = 0; row < block.num_rows; ++row) {
      float* const to = worker.scaled.data() + row * block.depth;
      loops_->scale_row(block, row, worker.scales.data(), to);
      rows[row] = reinterpret_cast<const std::byte*>(to);
    }
    block.rows = rows;
    block.element = RowSource::Element::f32;
  }

  void multiply(const JobGraph::Job& job, std::int64_t, int number) override {
    const Slab& slab = slabs_[job.slab];
    const PackedMatrix& weights = slab.group->weights;
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    const std::int64_t columns = job.count * kStepDepth;
    worker.panels.reserve(2 * job.count * transposed_panel_bytes(weights));
    worker.scratch.reserve(slab.product->scratch_bytes);
    worker.results.reserve(kSlabRows * kTransposedSteps * kStepDepth);
    transpose_steps({&compute_.gemm(weights.layout.format), loops_}, weights, job.first, job.count,
                    worker.panels.data());
    const PackedMatrix transposed{.layout = {.format = slab.product->format},
                                  .rows = columns,
                                  .depth = weights.rows,
                                  .panels = worker.panels.data()};
    slab.product->tile({.packed_rows = graph_.place(job.slab),
                        .num_rows = slab.num_rows,
                        .matrix = &transposed,
                        .first_panel = 0,
                        .num_panels = 2 * job.count,
                        .out = worker.results.data(),
                        .out_stride = columns,
                        .scratch = worker.scratch.data()});
    add_low_rank(slab, job, worker);
    const std::int64_t first = job.first * kStepDepth;
    for (std::int64_t row = 0; row < slab.num_rows; ++row) {
      store(
          slab, row,
          {first, std::min(columns, weights.depth - first), worker.results.data() + row * columns});
    }
  }

  void add_low_rank(const Slab& slab, const JobGraph::Job& job, Worker& worker) const {
    const auto& [inner, matrix] = slab.group->epilogue.low_rank;
    if (matrix.panels == nullptr) return;
    const GemmKernel& kernel = compute_.gemm(matrix.layout.format);
    pack_float_rows(kernel, inner.row_range(slab.first_row, slab.num_rows), worker.low_rank_rows);
    worker.low_rank_panels.reserve(2 * job.count * transposed_panel_bytes(matrix));
    transpose_steps({&kernel, loops_}, matrix, job.first, job.count, worker.low_rank_panels.data());
    const PackedMatrix transposed{.layout = matrix.layout,
                                  .rows = job.count * kStepDepth,
                                  .depth = matrix.rows,
                                  .panels = worker.low_rank_panels.data()};
    worker.scratch.reserve(kernel.scratch_bytes);
    kernel.tile({.packed_rows = worker.low_rank_rows.data(),
                 .num_rows = slab.num_rows,
                 .matrix = &transposed,
                 .first_panel = 0,
                 .num_panels = 2 * job.count,
                 .out = worker.results.data(),
                 .out_stride = job.count * kStepDepth,
                 .scratch = worker.scratch.data(),
                 .resume = true});
  }

  /// Results of k = first .. first + count - 1.
  struct Results {
    std::int64_t first;
    std::int64_t count;
    float* values;
  };

  /// Each result goes where the input has its k.
  void store(const Slab& slab, std::int64_t row, const Results& results) const {
    std::byte* const out = output_->data + (slab.first_row + row) * output_->stride_bytes;
    auto* floats = reinterpret_cast<float*>(out);
    auto* words = reinterpret_cast<BFloat16*>(out);
    const bool is_f32 = output_->element == RowSource::Element::f32;
    add_to(slab, row, results);
    if (const std::int32_t* order = slab.group->weights.order; order != nullptr) {
      for (std::int64_t i = 0; i < results.count; ++i) {
        const std::int32_t to = order[results.first + i];
        is_f32 ? void(floats[to] = results.values[i])
               : void(words[to] = to_bfloat16(results.values[i]));
      }
    } else if (is_f32) {
      std::copy_n(results.values, results.count, floats + results.first);
    } else {
      compute_.vector->to_bf16(results.values, results.count, words + results.first);
    }
  }

  /// Adds the addend of the group, if it has one.
  void add_to(const Slab& slab, std::int64_t row, const Results& results) const {
    const GemmGroup& group = *slab.group;
    if (group.epilogue.addend.data() == nullptr) return;
    const float* const addend = group.epilogue.addend.row(slab.first_row + row).data();
    if (group.weights.order == nullptr) {
      compute_.vector->add(addend + results.first, results.count, results.values);
      return;
    }
    for (std::int64_t i = 0; i < results.count; ++i) {
      results.values[i] += addend[group.weights.order[results.first + i]];
    }
  }

  Compute compute_;
  const TransposeLoops* loops_;
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
