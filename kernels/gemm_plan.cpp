#include "kernels/gemm_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/prefetch.h"
#include "kernels/nvfp4_activations.h"
#include "kernels/pack_float_rows.h"
#include "kernels/streamed_results.h"

namespace moesaic {
namespace {

/// Panels of one job, when there is enough work to share out: few rows wait for memory, which a
/// core reads faster the longer the stretch. More rows have fewer panels (kMaxJobRowPanels).
constexpr std::int64_t kMaxJobPanels = 64;
/// Packed bytes below which a further split costs more than it balances.
constexpr std::int64_t kMinJobBytes = std::int64_t{64} << 10;

}  // namespace

GemmPlan::GemmPlan(const Compute& compute)
    : compute_(compute),
      loops_(&find_transpose_loops(compute.isa)),
      workers_(static_cast<std::size_t>(compute.pool->size())) {}

void GemmPlan::begin(std::size_t num_products) {
  products_.clear();
  products_.reserve(num_products);
  slabs_.clear();
  output_bytes_ = 0;
  graph_.begin();
}

void GemmPlan::add_product(Product product, std::int64_t all_panels) {
  product.kernel = &compute_.gemm(product.weights.layout);
  const std::int64_t even_share = all_panels / (JobGraph::kJobsPerThread * compute_.pool->size());
  const std::int64_t least =
      std::clamp<std::int64_t>(kMinJobBytes / product.weights.panel_stride(), 1, kMaxJobPanels);
  // Kernels take panels in pairs.
  product.job_panels = std::min(round_up(std::max(even_share, least), 2), kMaxJobPanels);
  products_.push_back(product);
}

std::size_t GemmPlan::add(const Slab& slab) {
  const Product& product = products_.back();
  slabs_.push_back(slab);
  Slab& added = slabs_.back();
  added.product = products_.size() - 1;
  if (!slab.is_inner) {
    output_bytes_ += slab.num_rows * product.weights.rows * element_bytes(product.output.element);
  }
  added.packed_bytes =
      added.num_rows *
      static_cast<std::int64_t>(product.kernel->packed_row_bytes(product.weights.depth));
  const std::int64_t inner_bytes =
      slab.is_inner ? added.num_rows * product.weights.rows * element_bytes(slab.element) : 0;
  return graph_.add_slab(
      {.bytes = round_up(added.packed_bytes, 64) + inner_bytes, .after = slab.inner});
}

std::size_t GemmPlan::add_slab(std::int64_t first_row, std::int64_t num_rows) {
  return add({.first_row = first_row, .num_rows = num_rows});
}

std::size_t GemmPlan::add_inner_slab(std::int64_t first_row, std::int64_t num_rows,
                                     RowSource::Element element) {
  return add({.first_row = first_row, .num_rows = num_rows, .is_inner = true, .element = element});
}

std::size_t GemmPlan::add_outer_slab(std::size_t inner) {
  const Slab& from = slabs_[inner];
  return add({.first_row = from.first_row,
              .num_rows = from.num_rows,
              .inner = static_cast<std::ptrdiff_t>(inner)});
}

JobGraph::Split GemmPlan::rows_to_pack(std::size_t slab) const {
  return {slabs_[slab].num_rows, JobGraph::kPackRows};
}

JobGraph::Split GemmPlan::panels_to_multiply(std::size_t index) const {
  const Slab& slab = slabs_[index];
  const Product& product = products_[slab.product];
  const std::int64_t most = kMaxJobRowPanels / slab.num_rows / 2 * 2;
  return {product.weights.num_panels(), std::min(product.job_panels, most)};
}

void GemmPlan::add_pack_jobs(std::size_t slab) {
  graph_.add_pack_jobs(slab, rows_to_pack(slab));
}

void GemmPlan::add_multiply_jobs(std::size_t slab) {
  graph_.add_multiply_jobs(slab, panels_to_multiply(slab));
}

void GemmPlan::add_in_turn(std::size_t slab) {
  graph_.add_in_turn(slab, rows_to_pack(slab), panels_to_multiply(slab));
}

/// Asks for the first weights of a job that this thread is likely to do next.
[[gnu::always_inline]] inline void GemmPlan::prefetch_weights(std::int64_t index) const {
  constexpr std::int64_t kLines = 16;  // the CPU's own prefetching goes on from there
  const JobGraph::Job* const job = graph_.job(index);
  if (job == nullptr || job->kind != JobGraph::Job::Kind::multiply) return;
  prefetch_lines(products_[slabs_[job->slab].product].weights.panel(job->first), kLines);
}

void GemmPlan::execute(const Gating& gating) {
  gating_ = gating;
  graph_.run(*compute_.pool, *this);
}

/// The inner activations of an MLP: row i is row i of the slab.
GemmOutput GemmPlan::inner_results(std::size_t index) const {
  const Slab& slab = slabs_[index];
  return {.data = graph_.place(index) + round_up(slab.packed_bytes, 64),
          .stride_bytes = products_[slab.product].weights.rows * element_bytes(slab.element),
          .element = slab.element};
}

/// Row i is row i of the slab, whether it keeps its results or not.
GemmOutput GemmPlan::results_of(std::size_t index) const {
  const Slab& slab = slabs_[index];
  if (slab.is_inner) return inner_results(index);
  GemmOutput output = products_[slab.product].output;
  output.data += slab.first_row * output.stride_bytes;
  return output;
}

/// A block of a slab's input rows, from `row` of the slab on. `rows` [kRowBlock] is for pointers.
RowSource GemmPlan::input_block(const Slab& slab, std::int64_t row, const std::byte** rows) const {
  const Product& product = products_[slab.product];
  const std::int64_t count = std::min(kRowBlock, slab.num_rows - row);
  if (slab.inner < 0) {
    RowSource block = *product.input;
    block.rows += slab.first_row + row;
    block.num_rows = count;
    return block;
  }
  const GemmOutput inner = inner_results(static_cast<std::size_t>(slab.inner));
  for (std::int64_t i = 0; i < count; ++i) rows[i] = inner.data + (row + i) * inner.stride_bytes;
  return {
      .rows = rows, .num_rows = count, .depth = product.weights.depth, .element = inner.element};
}

/// Rows of a block, their elements in the order in which the matrix has its k.
void GemmPlan::gather(const RowSource& block, const std::int32_t* order, Worker& worker,
                      const std::byte** rows) {
  const std::int64_t size = element_bytes(block.element);
  worker.ordered.resize(static_cast<std::size_t>(kRowBlock * block.depth * size));
  std::byte* to = worker.ordered.data();
  for (std::int64_t row = 0; row < block.num_rows; ++row) {
    rows[row] = to;
    for (std::int64_t k = 0; k < block.depth; ++k, to += size) {
      std::memcpy(to, block.rows[row] + order[k] * size, static_cast<std::size_t>(size));
    }
  }
}

/// Rows of a block rounded to nvfp4, as floats.
void GemmPlan::round_block(RowSource& block, float input_scale, Worker& worker,
                           const std::byte** rows) {
  worker.rounded.resize(static_cast<std::size_t>(kRowBlock * block.depth));
  for (std::int64_t row = 0; row < block.num_rows; ++row) {
    const std::span<float> to = std::span(worker.rounded)
                                    .subspan(static_cast<std::size_t>(row * block.depth),
                                             static_cast<std::size_t>(block.depth));
    if (block.element == RowSource::Element::f32) {
      std::copy_n(reinterpret_cast<const float*>(block.rows[row]), block.depth, to.data());
    } else {
      const auto* from = reinterpret_cast<const BFloat16*>(block.rows[row]);
      std::transform(from, from + block.depth, to.begin(),
                     [](BFloat16 value) { return to_float(value); });
    }
    round_to_nvfp4(to, input_scale);
    rows[row] = reinterpret_cast<const std::byte*>(to.data());
  }
  block.rows = rows;
  block.element = RowSource::Element::f32;
}

void GemmPlan::pack(const JobGraph::Job& job, int worker) {
  const Slab& slab = slabs_[job.slab];
  const Product& product = products_[slab.product];
  Worker& own = workers_[static_cast<std::size_t>(worker)];
  const auto row_bytes =
      static_cast<std::int64_t>(product.kernel->packed_row_bytes(product.weights.depth));
  const std::byte* rows[kRowBlock];
  const std::byte* changed[kRowBlock];
  for (std::int64_t row = job.first; row < job.first + job.count; row += kRowBlock) {
    RowSource block = input_block(slab, row, rows);
    if (product.weights.order != nullptr) {
      gather(block, product.weights.order, own, changed);
      block.rows = changed;
    }
    if (product.weights.layout.format == Format::nvfp4 &&
        compute_.nvfp4_activations == Nvfp4Activations::nvfp4) {
      round_block(block, product.weights.input_scale, own, changed);
    }
    product.kernel->pack_rows(block, graph_.place(job.slab) + row * row_bytes);
  }
  project(product.epilogue.low_rank, job, own);
  project(product.up_epilogue.low_rank, job, own);
}

/// Makes the rows of `low_rank` that belong to those that the job has packed.
void GemmPlan::project(const LowRank& low_rank, const JobGraph::Job& job, Worker& worker) const {
  const PackedMatrix& matrix = low_rank.projection;
  if (matrix.panels == nullptr) return;
  const Slab& slab = slabs_[job.slab];
  const GemmKernel& kernel = *products_[slab.product].kernel;
  const auto row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(matrix.depth));
  const std::int64_t stride = matrix.num_panels() * kPanelColumns;
  worker.results.reserve(job.count * stride);
  worker.scratch.reserve(kernel.scratch_bytes);
  kernel.tile({.packed_rows = graph_.place(job.slab) + job.first * row_bytes,
               .num_rows = job.count,
               .matrix = &matrix,
               .first_panel = 0,
               .num_panels = matrix.num_panels(),
               .out = worker.results.data(),
               .out_stride = stride,
               .scratch = worker.scratch.data()});
  low_rank.set_inner(slab.first_row + job.first,
                     {worker.results.data(), job.count, matrix.rows, stride});
}

void GemmPlan::multiply(const JobGraph::Job& job, std::int64_t index, int worker) {
  prefetch_weights(index + compute_.pool->size());
  const Slab& slab = slabs_[job.slab];
  const Product& product = products_[slab.product];
  Worker& own = workers_[static_cast<std::size_t>(worker)];
  const std::int64_t stride = job.count * kPanelColumns;
  own.results.reserve(2 * kMaxJobRowPanels * kPanelColumns);
  own.scratch.reserve(product.kernel->scratch_bytes);
  TileArgs args{.packed_rows = graph_.place(job.slab),
                .num_rows = slab.num_rows,
                .matrix = &product.weights,
                .first_panel = job.first,
                .num_panels = job.count,
                .out = own.results.data(),
                .out_stride = stride,
                .scratch = own.scratch.data()};
  args.streamed = streamed_by_kernel(job, product.epilogue);
  multiply_by(args, product.epilogue.low_rank, slab, own);
  if (args.streamed.data != nullptr && product.epilogue.keep.data() == nullptr) return;
  if (product.up.panels != nullptr) {
    args.matrix = &product.up;
    args.out += slab.num_rows * stride;
    args.streamed = streamed_by_kernel(job, product.up_epilogue);
    multiply_by(args, product.up_epilogue.low_rank, slab, own);
  }
  finish(job, own);
}

std::int64_t GemmPlan::columns_of(const JobGraph::Job& job) const {
  const std::int64_t left =
      products_[slabs_[job.slab].product].weights.rows - job.first * kPanelColumns;
  return std::min(job.count * kPanelColumns, left);
}

/// Where a job's results go if they go past the caches, or nowhere.
StreamedRows GemmPlan::streamed_results(const JobGraph::Job& job) const {
  const Slab& slab = slabs_[job.slab];
  const GemmOutput output = results_of(job.slab);
  if (output.element != RowSource::Element::f32 || slab.is_inner || output_bytes_ < kCachedBytes) {
    return {};
  }
  const StreamedRows rows{reinterpret_cast<float*>(output.data) + job.first * kPanelColumns,
                          output.stride_bytes / 4};
  return are_whole_lines(rows.data, rows.stride, columns_of(job)) ? rows : StreamedRows();
}

/// The same for what is kept of them: a backward pass reads it after the other layers.
StreamedRows GemmPlan::streamed_keep(const JobGraph::Job& job,
                                     const MatrixView<float>& kept) const {
  if (4 * kept.rows() * kept.cols() < kCachedBytes) return {};
  const StreamedRows rows{kept.row(slabs_[job.slab].first_row).data() + job.first * kPanelColumns,
                          kept.stride()};
  return are_whole_lines(rows.data, rows.stride, columns_of(job)) ? rows : StreamedRows();
}

/// What of this a kernel can do: sums are to be final, and nothing else to be made of them but what
/// is kept.
StreamedRows GemmPlan::streamed_by_kernel(const JobGraph::Job& job,
                                          const Epilogue& epilogue) const {
  const Slab& slab = slabs_[job.slab];
  const Product& product = products_[slab.product];
  const auto& [low_rank, bias, addend, keep] = epilogue;
  const GemmKernel& last = low_rank.matrix.panels == nullptr
                               ? *product.kernel
                               : compute_.gemm(low_rank.matrix.layout.format);
  if (!last.streams_results || slab.num_rows <= kRowBlock || bias != nullptr ||
      addend.data() != nullptr) {
    return {};
  }
  if (keep.data() != nullptr) return streamed_keep(job, keep);
  return product.up.panels == nullptr ? streamed_results(job) : StreamedRows();
}

/// A slab's rows times panels of a matrix, and what an adapter adds.
void GemmPlan::multiply_by(TileArgs args, const LowRank& low_rank, const Slab& slab,
                           Worker& worker) const {
  const GemmKernel& kernel = *products_[slab.product].kernel;
  if (low_rank.matrix.panels == nullptr) return kernel.tile(args);
  const GemmKernel& of_terms = compute_.gemm(low_rank.matrix.layout.format);
  pack_float_rows(of_terms, low_rank.inner.row_range(slab.first_row, slab.num_rows),
                  worker.low_rank);
  const TileTerms terms{worker.low_rank.data(), &low_rank.matrix};
  if (kernel.takes_terms && &kernel == &of_terms) {
    args.terms = {&terms, 1};
    return kernel.tile(args);
  }
  const StreamedRows streamed = std::exchange(args.streamed, {});
  kernel.tile(args);
  args.streamed = streamed;
  worker.scratch.reserve(of_terms.scratch_bytes);
  args.packed_rows = terms.packed_rows;
  args.matrix = terms.matrix;
  args.scratch = worker.scratch.data();
  args.resume = true;
  of_terms.tile(args);
}

void GemmPlan::apply(const JobGraph::Job& job, const Epilogue& epilogue,
                     const MatrixView<float>& results) const {
  const std::int64_t first_row = slabs_[job.slab].first_row;
  const std::int64_t first = job.first * kPanelColumns;
  const VectorKernels& vector = *compute_.vector;
  const bool is_added = epilogue.bias != nullptr || epilogue.addend.data() != nullptr;
  for (std::int64_t row = 0; is_added && row < results.rows(); ++row) {
    float* const sums = results.row(row).data();
    if (epilogue.bias != nullptr) vector.add(epilogue.bias + first, results.cols(), sums);
    if (epilogue.addend.data() != nullptr) {
      vector.add(epilogue.addend.row(first_row + row).data() + first, results.cols(), sums);
    }
  }
  const MatrixView<float>& kept = epilogue.keep;
  if (kept.data() == nullptr || streamed_by_kernel(job, epilogue).data != nullptr) return;
  const StreamedRows streamed = streamed_keep(job, kept);
  if (streamed.data != nullptr) {
    return loops_->stream_rows(results, streamed.data, streamed.stride);
  }
  for (std::int64_t row = 0; row < results.rows(); ++row) {
    std::ranges::copy(results.row(row), kept.row(first_row + row).data() + first);
  }
}

/// Epilogues, gating and rounding, while the results are in the cache.
void GemmPlan::finish(const JobGraph::Job& job, Worker& worker) const {
  const Slab& slab = slabs_[job.slab];
  const Product& product = products_[slab.product];
  const VectorKernels& vector = *compute_.vector;
  const std::int64_t stride = job.count * kPanelColumns;
  const std::int64_t first_column = job.first * kPanelColumns;
  const std::int64_t columns = columns_of(job);
  const GemmOutput output = results_of(job.slab);
  const StreamedRows streamed = streamed_results(job);
  const MatrixView<float> results(worker.results.data(), slab.num_rows, columns, stride);
  const MatrixView<float> up(results.data() + slab.num_rows * stride, slab.num_rows, columns,
                             stride);
  apply(job, product.epilogue, results);
  if (product.up.panels != nullptr) apply(job, product.up_epilogue, up);
  for (std::int64_t row = 0; row < slab.num_rows; ++row) {
    float* const values = results.row(row).data();
    if (product.up.panels != nullptr) {
      vector.gate(gating_, up.row(row).data(), columns, values);
    }
    if (streamed.data != nullptr) continue;
    std::byte* const out = output.data + row * output.stride_bytes;
    if (output.element == RowSource::Element::f32) {
      std::copy_n(values, columns, reinterpret_cast<float*>(out) + first_column);
    } else {
      vector.to_bf16(values, columns, reinterpret_cast<BFloat16*>(out) + first_column);
    }
  }
  if (streamed.data == nullptr) return;
  loops_->stream_rows(results, streamed.data, streamed.stride);
}

}  // namespace moesaic
