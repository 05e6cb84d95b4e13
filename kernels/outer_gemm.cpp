#include "kernels/outer_gemm.h"

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/error.h"
#include "kernels/job_graph.h"
#include "kernels/outer_panels.h"
#include "kernels/sum_order.h"

namespace moesaic {
namespace {

/// Rows of the inputs that are packed together: the depth of a piece. Results are loaded and stored
/// once a piece.
constexpr std::int64_t kPieceRows = 1024;
/// Columns of one input that become the rows of a product: a slab.
constexpr std::int64_t kSlabColumns = JobGraph::kSlabRows;
/// Panels of one job.
constexpr std::int64_t kMaxJobPanels = 8;
/// Steps of 32 rows that one job packs into panels.
constexpr std::int64_t kPackSteps = 2;

/// Columns of the narrower input times rows, up to which packing wide rows costs more than reading
/// them where they are.
constexpr std::int64_t kNarrowSize = 512;
constexpr std::int64_t kMostNarrow = 64;
/// Wide columns of one such job.
constexpr std::int64_t kWideColumns = 256;

/// What one slab of the graph is: columns of an input, over one piece of a group's rows.
struct Part {
  const OuterGroup* group;
  std::int64_t first_row;
  std::int64_t num_rows;
  bool is_panels;             // or rows of the product
  std::int64_t first_column;  // of the product's rows
  std::int64_t num_columns;
  bool resume;  // results go on from what is there
};

/// Memory of one thread.
struct Worker {
  Buffer<float> columns;      // kRowBlock columns as rows
  Buffer<float> results;      // [columns of a slab, panels * 16]
  Buffer<std::byte> scratch;  // of the kernel
  Buffer<float> narrow;       // [rows + 1, narrow columns padded], the last one zeros
};

void check_group(const OuterInput& input, const OuterGroup& group) {
  const std::int64_t rows = std::min(input.x.num_rows, input.y.num_rows);
  require(group.first_row >= 0 && group.num_rows >= 0 && group.first_row + group.num_rows <= rows &&
              group.result.rows() == input.y.depth && group.result.cols() == input.x.depth,
          ErrorKind::internal,
          "a product over rows {} to {} of {}, {} by {} columns, with a result of {} x {}",
          group.first_row, group.first_row + group.num_rows, rows, input.y.depth, input.x.depth,
          group.result.rows(), group.result.cols());
}

}  // namespace

class OuterGemm::Plan final : private JobGraph::Work {
 public:
  explicit Plan(const Compute& compute)
      : compute_(compute),
        loops_(&find_transpose_loops(compute.isa)),
        workers_(static_cast<std::size_t>(compute.pool->size())) {}

  void run(const OuterInput& input, std::span<const OuterGroup> groups) {
    require(input.format == Format::f32 || input.format == Format::bf16, ErrorKind::internal,
            "no products over rows in {}", format_name(input.format));
    for (const OuterGroup& group : groups) check_group(input, group);
    kernel_ = &compute_.gemm(input.format);
    // The wider input becomes panels, which costs less than to become rows.
    turned_ = input.y.depth > input.x.depth;
    panels_ = turned_ ? input.y : input.x;
    rows_ = turned_ ? input.x : input.y;
    large_.clear();
    narrow_.clear();
    for (const OuterGroup& group : groups) {
      const bool is_narrow =
          rows_.depth <= kMostNarrow && rows_.depth * group.num_rows <= kNarrowSize;
      (is_narrow ? narrow_ : large_).push_back(group);
    }
    run_narrow();
    if (large_.empty()) return;
    plan_jobs(large_);
    graph_.run(*compute_.pool, *this);
  }

  [[nodiscard]] std::int64_t scratch_bytes() const noexcept { return graph_.packed_bytes(); }

 private:
  void plan_jobs(std::span<const OuterGroup> groups) {
    parts_.clear();
    graph_.begin();
    std::int64_t all_panels = 0;  // times slabs
    for (const OuterGroup& group : groups) {
      all_panels += piece_count(group) * slab_count() * panel_count(panels_.depth);
    }
    job_panels_ = std::clamp<std::int64_t>(
        round_up(all_panels / (JobGraph::kJobsPerThread * compute_.pool->size()), 2), 2,
        kMaxJobPanels);
    for (const OuterGroup& group : groups) {
      for (std::int64_t piece = 0; piece < piece_count(group); ++piece) add_piece(group, piece);
    }
  }

  [[nodiscard]] ProductOrder order() const {
    if (kernel_->format == Format::f32) return ProductOrder::chain;
    return has_tile_order(kernel_->isa) ? ProductOrder::tiles : ProductOrder::dot;
  }

  /// Groups with few columns on one side, in the order that the kernel would have.
  void run_narrow() {
    const std::int64_t chunks = divide_up(panels_.depth, kWideColumns);
    compute_.pool->parallel_for(std::ssize(narrow_) * chunks, [&](std::int64_t task, int number) {
      multiply_narrow(narrow_[static_cast<std::size_t>(task / chunks)],
                      task % chunks * kWideColumns, workers_[static_cast<std::size_t>(number)]);
    });
  }

  void multiply_narrow(const OuterGroup& group, std::int64_t first_column, Worker& worker) const {
    const std::int64_t width = round_up(rows_.depth, kNarrowColumns);
    worker.narrow.reserve((group.num_rows + 1) * width);
    worker.results.reserve(width * kWideColumns);
    pack_narrow(group, width, worker.narrow.data());
    const ResultBlock block{.result = group.result,
                            .turned = turned_,
                            .first_row = 0,
                            .first_column = first_column,
                            .num_rows = rows_.depth,
                            .num_columns = std::min(kWideColumns, panels_.depth - first_column)};
    float* const sums = worker.results.data();
    std::fill_n(sums, width * kWideColumns, 0.0F);
    if (group.accumulate) block.load(*loops_, sums, kWideColumns);
    RowSource wide = panels_;
    wide.rows += group.first_row;
    loops_->narrow_product({.narrow = worker.narrow.data(),
                            .narrow_stride = width,
                            .narrow_columns = width,
                            .wide = wide,
                            .num_rows = group.num_rows,
                            .first_column = first_column,
                            .num_columns = block.num_columns,
                            .sums = sums,
                            .sums_stride = kWideColumns,
                            .order = order(),
                            .zeros = worker.narrow.data() + group.num_rows * width});
    block.store(*loops_, sums, kWideColumns);
  }

  /// Rows of the narrow input as floats [num_rows + 1, width], rounded if the order wants it; the
  /// last one is zeros.
  void pack_narrow(const OuterGroup& group, std::int64_t width, float* out) const {
    const bool is_rounded = kernel_->format == Format::bf16;
    std::fill_n(out, (group.num_rows + 1) * width, 0.0F);
    for (std::int64_t row = 0; row < group.num_rows; ++row, out += width) {
      const std::byte* const from = rows_.rows[group.first_row + row];
      for (std::int64_t i = 0; i < rows_.depth; ++i) {
        if (rows_.element == RowSource::Element::bf16) {
          out[i] = to_float(reinterpret_cast<const BFloat16*>(from)[i]);
        } else {
          const float value = reinterpret_cast<const float*>(from)[i];
          out[i] = is_rounded ? to_float(to_bfloat16(value)) : value;
        }
      }
    }
  }

  [[nodiscard]] static std::int64_t piece_count(const OuterGroup& group) {
    return std::max<std::int64_t>(1, divide_up(group.num_rows, kPieceRows));
  }
  [[nodiscard]] std::int64_t slab_count() const { return JobGraph::slab_count(rows_.depth); }

  /// Some rows of a group: panels, and slabs that go on from those of the piece before.
  void add_piece(const OuterGroup& group, std::int64_t piece) {
    const std::int64_t first = piece * kPieceRows;
    const Part part{.group = &group,
                    .first_row = group.first_row + first,
                    .num_rows = std::min(kPieceRows, group.num_rows - first),
                    .is_panels = true,
                    .first_column = 0,
                    .num_columns = panels_.depth,
                    .resume = group.accumulate || piece > 0};
    const std::int64_t slabs = slab_count();
    const auto beside = std::ssize(parts_);
    add_part(part, {.bytes = panel_matrix(part).bytes()});
    graph_.add_pack_jobs(
        static_cast<std::size_t>(beside),
        {step_count(kernel_->format, std::max<std::int64_t>(1, part.num_rows)), kPackSteps});
    for (std::int64_t slab = 0; slab < slabs; ++slab) {
      Part rows = part;
      rows.is_panels = false;
      rows.first_column = slab * kSlabColumns;
      rows.num_columns = std::min(kSlabColumns, rows_.depth - rows.first_column);
      const std::ptrdiff_t added = std::ssize(parts_);
      add_part(rows, {.bytes = rows.num_columns * row_bytes(rows),
                      .beside = beside,
                      .continues = piece > 0 ? added - slabs - 1 : -1});
      graph_.add_in_turn(static_cast<std::size_t>(added), {rows.num_columns, JobGraph::kPackRows},
                         {panel_count(panels_.depth), job_panels_});
    }
  }

  void add_part(const Part& part, const JobGraph::Slab& slab) {
    parts_.push_back(part);
    graph_.add_slab(slab);
  }

  [[nodiscard]] std::int64_t row_bytes(const Part& part) const {
    return static_cast<std::int64_t>(kernel_->packed_row_bytes(part.num_rows));
  }

  [[nodiscard]] PackedMatrix panel_matrix(const Part& part) const {
    return {.layout = {.format = kernel_->format}, .rows = panels_.depth, .depth = part.num_rows};
  }

  static RowSource part_of(const RowSource& source, const Part& part) {
    RowSource rows = source;
    rows.rows += part.first_row;
    rows.num_rows = part.num_rows;
    return rows;
  }

  void pack(const JobGraph::Job& job, int number) override {
    const Part& part = parts_[job.slab];
    if (part.num_rows == 0) return;  // it has no bytes in the ring: the place is another's
    std::byte* const place = graph_.place(job.slab);
    if (part.is_panels) {
      PackedMatrix matrix = panel_matrix(part);
      matrix.panels = place;
      pack_row_panels(*loops_, part_of(panels_, part), {job.first, job.count}, matrix, place);
      return;
    }
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    worker.columns.reserve(kRowBlock * kPieceRows);
    const RowSource rows = part_of(rows_, part);
    for (std::int64_t first = job.first; first < job.first + job.count; first += kRowBlock) {
      const std::int64_t count = std::min(kRowBlock, job.first + job.count - first);
      const std::byte* pointers[kRowBlock];
      load_columns(*loops_, rows, part.first_column + first, worker.columns.data(), pointers);
      kernel_->pack_rows({.rows = pointers, .num_rows = count, .depth = part.num_rows},
                         place + first * row_bytes(part));
    }
  }

  void multiply(const JobGraph::Job& job, std::int64_t, int number) override {
    const Part& part = parts_[job.slab];
    Worker& worker = workers_[static_cast<std::size_t>(number)];
    worker.results.reserve(kSlabColumns * kMaxJobPanels * kPanelColumns);
    worker.scratch.reserve(kernel_->scratch_bytes);
    PackedMatrix matrix = panel_matrix(part);
    matrix.panels = graph_.place(static_cast<std::size_t>(graph_.slab(job.slab).beside));
    const ResultBlock block{.result = part.group->result,
                            .turned = turned_,
                            .first_row = part.first_column,
                            .first_column = job.first * kPanelColumns,
                            .num_rows = part.num_columns,
                            .num_columns = std::min(job.count * kPanelColumns,
                                                    panels_.depth - job.first * kPanelColumns)};
    const std::int64_t stride = job.count * kPanelColumns;
    float* const out = worker.results.data();
    if (part.resume) block.load(*loops_, out, stride);
    if (part.num_rows > 0) {
      kernel_->tile({.packed_rows = graph_.place(job.slab),
                     .num_rows = part.num_columns,
                     .matrix = &matrix,
                     .first_panel = job.first,
                     .num_panels = job.count,
                     .out = out,
                     .out_stride = stride,
                     .scratch = worker.scratch.data(),
                     .resume = part.resume});
    } else if (!part.resume) {
      for (std::int64_t row = 0; row < part.num_columns; ++row) {
        std::fill_n(out + row * stride, block.num_columns, 0.0F);
      }
    }
    block.store(*loops_, out, stride);
  }

  Compute compute_;
  const TransposeLoops* loops_;
  const GemmKernel* kernel_ = nullptr;
  RowSource panels_;     // the input whose columns are those of the product
  RowSource rows_;       // the other
  bool turned_ = false;  // the product is the transposed result
  std::int64_t job_panels_ = kMaxJobPanels;
  std::vector<OuterGroup> large_;
  std::vector<OuterGroup> narrow_;
  std::vector<Part> parts_;  // slabs as the graph has them
  JobGraph graph_;
  std::vector<Worker> workers_;
};

OuterGemm::OuterGemm(const Compute& compute) : plan_(std::make_unique<Plan>(compute)) {}

OuterGemm::~OuterGemm() = default;

void OuterGemm::run(const OuterInput& input, std::span<const OuterGroup> groups) {
  plan_->run(input, groups);
}

/// Jobs that are as large as any leave the most pieces to be packed ahead, and the last step of
/// each piece may have one row alone.
std::int64_t OuterGemm::packed_bytes(const GemmKernel& kernel, const Size& size, int threads) {
  const std::int64_t narrow = std::min(size.y_columns, size.x_columns);
  const std::int64_t wide = std::max(size.y_columns, size.x_columns);
  const std::int64_t jobs =  // of a piece
      JobGraph::slab_count(narrow) * divide_up(panel_count(wide), kMaxJobPanels);
  const std::int64_t pieces = JobGraph::most_slabs_in_turn(jobs, threads);
  const std::int64_t rows = std::min(kPieceRows, divide_up(size.rows, pieces) + kStepDepth - 1);
  const PackedMatrix panels{.layout = {.format = kernel.format}, .rows = wide, .depth = rows};
  return pieces *
         (panels.bytes() + narrow * static_cast<std::int64_t>(kernel.packed_row_bytes(rows)));
}

std::int64_t OuterGemm::scratch_bytes() const noexcept {
  return plan_->scratch_bytes();
}

}  // namespace moesaic
