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

/// Rows [first_row, first_row + num_rows) of the inputs, all of one group.
struct Slab {
  std::size_t group;
  const GemmKernel* product;  // of the transposed panels
  std::int64_t first_row;
  std::int64_t num_rows;

  [[nodiscard]] std::int64_t row_bytes(const GemmGroup& of) const {
    return static_cast<std::int64_t>(product->packed_row_bytes(of.weights.rows));
  }
  /// Of its packed rows of one input.
  [[nodiscard]] std::int64_t bytes(const GemmGroup& of) const {
    return round_up(num_rows * row_bytes(of), 64);
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
  const PackedMatrix& projection = low_rank.projection;
  require(projection.panels == nullptr ||
              (TransposedGemm::can_project(group.weights, projection) &&
               projection.rows == group.weights.rows && projection.depth == low_rank.inner.cols()),
          ErrorKind::internal, "a transposed product of {} rows projects to {} by a matrix {} x {}",
          group.weights.rows, low_rank.inner.cols(), projection.rows, projection.depth);
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

/// What is added has the form of what it is added to.
void check_term(const GemmGroup& group, const GemmGroup& first) {
  const auto is_f32 = [](const PackedMatrix& matrix) {
    return matrix.layout.format == Format::f32;
  };
  require(group.first_row == first.first_row && group.num_rows == first.num_rows &&
              group.weights.depth == first.weights.depth &&
              same_order(group.weights, first.weights) &&
              is_f32(group.weights) == is_f32(first.weights),
          ErrorKind::internal, "transposed products of different forms are added");
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

  void run(std::span<const TransposedProduct> products, const GemmOutput& output) {
    slabs_.clear();
    graph_.begin();
    products_ = products;
    output_ = &output;
    std::int64_t all_steps = 0;  // times slabs
    for (std::size_t i = 0; i < products.front().groups.size(); ++i) {
      check_groups(i);
      const GemmGroup& group = products.front().groups[i];
      all_steps += num_steps(group.weights) * ((group.num_rows + kSlabRows - 1) / kSlabRows);
      for (std::int64_t row = 0; row < group.num_rows; row += kSlabRows) {
        add_slab(i, row, std::min(kSlabRows, group.num_rows - row));
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
  void check_groups(std::size_t index) const {
    for (const auto& [input, groups] : products_) {
      require(groups.size() == products_.front().groups.size(), ErrorKind::internal,
              "transposed products of {} and of {} groups are added", groups.size(),
              products_.front().groups.size());
      check_group(input, groups[index]);
      check_low_rank(groups[index]);
      check_term(groups[index], products_.front().groups[index]);
    }
  }

  void add_slab(std::size_t index, std::int64_t first, std::int64_t rows) {
    const GemmGroup& group = products_.front().groups[index];
    const bool is_f32 = group.weights.layout.format == Format::f32;
    const GemmKernel& product = compute_.gemm(is_f32 ? Format::f32 : Format::bf16);
    slabs_.push_back({index, &product, group.first_row + first, rows});
    std::int64_t bytes = 0;
    for (const auto& [input, groups] : products_) bytes += slabs_.back().bytes(groups[index]);
    graph_.add_slab({.bytes = bytes});
  }

  void add_pack_jobs(std::size_t slab) {
    graph_.add_pack_jobs(slab, {slabs_[slab].num_rows, kPackRows});
  }

  void add_multiply_jobs(std::size_t slab, std::int64_t even_share) {
    const PackedMatrix& weights = products_.front().groups[slabs_[slab].group].weights;
    const std::int64_t most =
        std::min(even_share, kPanelBytes / (2 * transposed_panel_bytes(weights)));
    std::int64_t steps = kTransposedSteps;
    while (steps > 1 && steps > most) steps /= 2;
    graph_.add_multiply_jobs(slab, {num_steps(weights), steps});
  }

  void pack(const JobGraph::Job& job, int number) override {
    const Slab& slab = slabs_[job.slab];
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    std::byte* place = graph_.place(job.slab);
    for (const auto& [input, groups] : products_) {
      const GemmGroup& group = groups[slab.group];
      pack_rows({&input, &group, &slab, job.first, job.count}, place, worker);
      place += slab.bytes(group);
    }
  }

  /// Rows [first, first + count) of a slab of one of the inputs.
  struct PackedRows {
    const RowSource* input;
    const GemmGroup* group;
    const Slab* slab;
    std::int64_t first;
    std::int64_t count;
  };

  /// `place`: of the slab's first row.
  void pack_rows(const PackedRows& rows, std::byte* place, Worker& worker) const {
    const PackedMatrix& weights = rows.group->weights;
    const std::int64_t row_bytes = rows.slab->row_bytes(*rows.group);
    const bool scaled = has_row_scales(weights);
    if (scaled) {
      worker.scales.reserve(weights.rows);
      worker.scaled.reserve(kRowBlock * weights.rows);
      load_row_scales(weights, worker.scales.data());
    }
    const std::byte* pointers[kRowBlock];
    for (std::int64_t row = rows.first; row < rows.first + rows.count; row += kRowBlock) {
      RowSource block = *rows.input;
      block.rows += rows.slab->first_row + row;
      block.num_rows = std::min(kRowBlock, rows.first + rows.count - row);
      if (scaled) scale(block, worker, pointers);
      rows.slab->product->pack_rows(block, place + row * row_bytes);
    }
    project(rows, place + rows.first * row_bytes, worker);
  }

  /// Makes the inner rows of the group's LowRank from those that have just been packed.
  void project(const PackedRows& rows, const std::byte* packed, Worker& worker) const {
    const LowRank& low_rank = rows.group->epilogue.low_rank;
    const PackedMatrix& matrix = low_rank.projection;
    if (matrix.panels == nullptr) return;
    const GemmKernel& kernel = *rows.slab->product;
    const std::int64_t panels = panel_count(matrix.depth);
    worker.panels.reserve(2 * kTransposedSteps * transposed_panel_bytes(matrix));
    worker.results.reserve(rows.count * panels * kPanelColumns);
    worker.scratch.reserve(kernel.scratch_bytes);
    for (std::int64_t step = 0; step < num_steps(matrix); step += kTransposedSteps) {
      const std::int64_t steps = std::min(kTransposedSteps, num_steps(matrix) - step);
      transpose_steps({&kernel, loops_}, matrix, step, steps, worker.panels.data());
      const PackedMatrix transposed{.layout = matrix.layout,
                                    .rows = steps * kStepDepth,
                                    .depth = matrix.rows,
                                    .panels = worker.panels.data()};
      kernel.tile({.packed_rows = packed,
                   .num_rows = rows.count,
                   .matrix = &transposed,
                   .first_panel = 0,
                   .num_panels = std::min(2 * steps, panels - 2 * step),
                   .out = worker.results.data() + step * kStepDepth,
                   .out_stride = panels * kPanelColumns,
                   .scratch = worker.scratch.data()});
    }
    for (std::int64_t row = 0; row < rows.count; ++row) {
      const float* const from = worker.results.data() + row * panels * kPanelColumns;
      const std::span<float> to = low_rank.inner.row(rows.slab->first_row + rows.first + row);
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] * low_rank.scale;
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
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    const std::int64_t columns = job.count * kStepDepth;
    worker.results.reserve(kSlabRows * kTransposedSteps * kStepDepth);
    const std::byte* place = graph_.place(job.slab);
    for (const auto& [input, groups] : products_) {
      const GemmGroup& group = groups[slab.group];
      const bool is_first = groups.data() == products_.front().groups.data();
      multiply_by(group.weights, {slab.product, place, slab.num_rows, !is_first}, job, worker);
      place += slab.bytes(group);
    }
    for (const auto& [input, groups] : products_) {
      add_low_rank(groups[slab.group].epilogue.low_rank, slab, job, worker);
    }
    const std::int64_t depth = products_.front().groups[slab.group].weights.depth;
    const std::int64_t first = job.first * kStepDepth;
    for (std::int64_t row = 0; row < slab.num_rows; ++row) {
      store(slab, row,
            {first, std::min(columns, depth - first), worker.results.data() + row * columns});
    }
  }

  /// Packed rows of a slab, and whether results go on from what is there.
  struct Factor {
    const GemmKernel* kernel;
    const std::byte* rows;
    std::int64_t num_rows;
    bool resume;
  };

  /// The worker's results [rows, k of the job] = rows times a matrix.
  void multiply_by(const PackedMatrix& matrix, const Factor& factor, const JobGraph::Job& job,
                   Worker& worker) const {
    worker.panels.reserve(2 * job.count * transposed_panel_bytes(matrix));
    worker.scratch.reserve(factor.kernel->scratch_bytes);
    transpose_steps({&compute_.gemm(matrix.layout.format), loops_}, matrix, job.first, job.count,
                    worker.panels.data());
    const PackedMatrix transposed{.layout = {.format = factor.kernel->format},
                                  .rows = job.count * kStepDepth,
                                  .depth = matrix.rows,
                                  .panels = worker.panels.data()};
    factor.kernel->tile({.packed_rows = factor.rows,
                         .num_rows = factor.num_rows,
                         .matrix = &transposed,
                         .first_panel = 0,
                         .num_panels = 2 * job.count,
                         .out = worker.results.data(),
                         .out_stride = transposed.rows,
                         .scratch = worker.scratch.data(),
                         .resume = factor.resume});
  }

  void add_low_rank(const LowRank& low_rank, const Slab& slab, const JobGraph::Job& job,
                    Worker& worker) const {
    if (low_rank.matrix.panels == nullptr) return;
    const GemmKernel& kernel = compute_.gemm(low_rank.matrix.layout.format);
    pack_float_rows(kernel, low_rank.inner.row_range(slab.first_row, slab.num_rows),
                    worker.low_rank_rows);
    multiply_by(low_rank.matrix, {&kernel, worker.low_rank_rows.data(), slab.num_rows, true}, job,
                worker);
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
    const std::int32_t* const order = products_.front().groups[slab.group].weights.order;
    if (order != nullptr) {
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
    const GemmGroup& group = products_.front().groups[slab.group];
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
  std::span<const TransposedProduct> products_;
  const GemmOutput* output_ = nullptr;
  std::vector<Slab> slabs_;  // as the graph has them
  JobGraph graph_;
  std::vector<Worker> workers_;
};

TransposedGemm::TransposedGemm(const Compute& compute) : plan_(std::make_unique<Plan>(compute)) {}

TransposedGemm::~TransposedGemm() = default;

void TransposedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                         const GemmOutput& output) {
  const TransposedProduct product{input, groups};
  plan_->run({&product, 1}, output);
}

void TransposedGemm::run(std::span<const TransposedProduct> products, const GemmOutput& output) {
  plan_->run(products, output);
}

bool TransposedGemm::rounds_rows(const PackedMatrix& weights) noexcept {
  return weights.layout.format != Format::f32 && !has_row_scales(weights);
}

bool TransposedGemm::can_project(const PackedMatrix& weights,
                                 const PackedMatrix& projection) noexcept {
  if (weights.layout.format == Format::f32) return projection.layout.format == Format::f32;
  return rounds_rows(weights) && projection.layout.format == Format::bf16;
}

}  // namespace moesaic
