#include "kernels/transposed_plan.h"

#include <algorithm>

#include "kernels/pack_float_rows.h"
#include "kernels/streamed_results.h"

namespace moesaic {
namespace {

/// Of all panels that one job makes, a few at a time.
constexpr std::int64_t kPanelBytes = std::int64_t{1} << 19;
/// Between rows of results, so that those of a tile do not meet in a few sets of the L1 cache.
constexpr std::int64_t kResultGap = kPanelColumns;

std::int64_t num_steps(const PackedMatrix& weights) {
  return step_count(Format::bf16, weights.depth);
}

/// Steps that are transposed together: so few that their panels are still near when the first rows
/// meet them. A decoder takes a while to start.
std::int64_t steps_at_once(const PackedMatrix& weights) {
  const Format format = weights.layout.format;
  return format == Format::bf16 || format == Format::f32 ? 1 : 4;
}

/// Some steps of a matrix as one of as many rows, without its panels.
PackedMatrix transposed_shape(const PackedMatrix& matrix, std::int64_t steps) {
  const bool is_f32 = matrix.layout.format == Format::f32;
  return {.layout = {.format = is_f32 ? Format::f32 : Format::bf16},
          .rows = steps * kStepDepth,
          .depth = matrix.rows};
}

/// From row to row of a job's results.
std::int64_t result_stride(const JobGraph::Job& job) {
  return job.count * kStepDepth + kResultGap;
}

}  // namespace

PackedMatrix TransposedPlan::Slab::part_of(const PackedMatrix& weights) const {
  if (depth == 0) return weights;
  PackedMatrix part = weights;
  part.rows = depth;
  part.panels = weights.panel(first_depth / kPanelColumns);
  return part;
}

std::int64_t TransposedPlan::Slab::row_bytes(const GemmGroup& of) const {
  return static_cast<std::int64_t>(kernel->packed_row_bytes(part_of(of.weights).rows));
}

std::int64_t TransposedPlan::Slab::bytes(const GemmGroup& of) const {
  return round_up(num_rows * row_bytes(of), 64);
}

TransposedPlan::TransposedPlan(const Compute& compute)
    : compute_(compute),
      loops_(&find_transpose_loops(compute.isa)),
      workers_(static_cast<std::size_t>(compute.pool->size())) {}

void TransposedPlan::run(std::span<const TransposedProduct> products, const GemmOutput& output) {
  slabs_.clear();
  graph_.begin();
  products_ = products;
  output_ = &output;
  output_bytes_ = 0;
  for (std::size_t i = 0; i < products.front().groups.size(); ++i) add_group(i);
  std::int64_t all_steps = 0;  // times slabs
  for (const Slab& slab : slabs_) all_steps += num_steps(group_of(slab).weights);
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    add_jobs(i, all_steps / (JobGraph::kJobsPerThread * compute_.pool->size()));
  }
  graph_.run(*compute_.pool, *this);
}

/// Whether sums wait in the output while the next piece of the depth is packed: not where they
/// would be rounded, or written over an addend, nor if all of the depth is wanted at once.
bool TransposedPlan::takes_pieces(const GemmGroup& group) const {
  return group.weights.rows > kPieceDepth && products_.size() == 1 &&
         group.weights.order == nullptr && group.epilogue.addend.data() == nullptr &&
         group.epilogue.low_rank.matrix.panels == nullptr &&
         output_->element == RowSource::Element::f32;
}

/// All rows meet a piece before the next piece is read.
void TransposedPlan::add_group(std::size_t index) {
  const GemmGroup& group = products_.front().groups[index];
  const bool is_f32 = group.weights.layout.format == Format::f32;
  const GemmKernel& kernel = compute_.gemm(is_f32 ? Format::f32 : Format::bf16);
  output_bytes_ += group.num_rows * group.weights.depth * element_bytes(output_->element);
  const std::int64_t slabs = JobGraph::slab_count(group.num_rows);
  const auto add = [&](Slab piece) {
    for (std::int64_t row = 0; row < group.num_rows; row += JobGraph::kSlabRows) {
      piece.first_row = group.first_row + row;
      piece.num_rows = std::min(JobGraph::kSlabRows, group.num_rows - row);
      add_slab(piece, piece.resume ? std::ssize(slabs_) - slabs : -1);
    }
  };
  if (!takes_pieces(group)) return add({.group = index, .kernel = &kernel});
  for (std::int64_t first = 0; first < group.weights.rows; first += kPieceDepth) {
    add({.group = index,
         .kernel = &kernel,
         .first_depth = first,
         .depth = std::min(kPieceDepth, group.weights.rows - first),
         .resume = first > 0});
  }
}

void TransposedPlan::add_slab(const Slab& slab, std::ptrdiff_t continues) {
  slabs_.push_back(slab);
  std::int64_t bytes = 0;
  for (const auto& [input, groups] : products_) bytes += slab.bytes(groups[slab.group]);
  graph_.add_slab({.bytes = bytes, .continues = continues});
}

void TransposedPlan::add_jobs(std::size_t slab, std::int64_t even_share) {
  const PackedMatrix weights = slabs_[slab].part_of(group_of(slabs_[slab]).weights);
  const std::int64_t most =
      std::min(even_share, kPanelBytes / (2 * transposed_panel_bytes(weights)));
  std::int64_t steps = kTransposedSteps;
  while (steps > 1 && steps > most) steps /= 2;
  graph_.add_in_turn(slab, {slabs_[slab].num_rows, JobGraph::kPackRows},
                     {num_steps(weights), steps});
}

void TransposedPlan::pack(const JobGraph::Job& job, int number) {
  const Slab& slab = slabs_[job.slab];
  Worker& worker = workers_[static_cast<std::size_t>(number)];
  std::byte* place = graph_.place(job.slab);
  for (const auto& [input, groups] : products_) {
    const GemmGroup& group = groups[slab.group];
    pack_rows({&input, &group, &slab, job.first, job.count}, place, worker);
    place += slab.bytes(group);
  }
}

/// `place`: of the slab's first row.
void TransposedPlan::pack_rows(const PackedRows& rows, std::byte* place, Worker& worker) const {
  const PackedMatrix weights = rows.slab->part_of(rows.group->weights);
  const std::int64_t row_bytes = rows.slab->row_bytes(*rows.group);
  const std::int64_t first_byte = rows.slab->first_depth * element_bytes(rows.input->element);
  const bool scaled = has_row_scales(weights);
  if (scaled) {
    worker.scales.reserve(weights.rows);
    worker.scaled.reserve(kRowBlock * weights.rows);
    load_row_scales(weights, worker.scales.data());
  }
  const std::byte* starts[kRowBlock];
  const std::byte* pointers[kRowBlock];
  for (std::int64_t row = rows.first; row < rows.first + rows.count; row += kRowBlock) {
    RowSource block = *rows.input;
    block.depth = weights.rows;
    block.num_rows = std::min(kRowBlock, rows.first + rows.count - row);
    for (std::int64_t i = 0; i < block.num_rows; ++i) {
      starts[i] = rows.input->rows[rows.slab->first_row + row + i] + first_byte;
    }
    block.rows = starts;
    if (scaled) scale(block, worker, pointers);
    rows.slab->kernel->pack_rows(block, place + row * row_bytes);
  }
  project(rows, place + rows.first * row_bytes, worker);
}

/// Makes the inner rows of the group's LowRank from those that have just been packed.
void TransposedPlan::project(const PackedRows& rows, const std::byte* packed,
                             Worker& worker) const {
  const LowRank& low_rank = rows.group->epilogue.low_rank;
  const PackedMatrix& matrix = low_rank.projection;
  if (matrix.panels == nullptr) return;
  const GemmKernel& kernel = *rows.slab->kernel;
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
  low_rank.set_inner(rows.slab->first_row + rows.first,
                     {worker.results.data(), rows.count, matrix.depth, panels * kPanelColumns});
}

/// A block of rows times the scales of W's rows.
void TransposedPlan::scale(RowSource& block, Worker& worker, const std::byte** rows) const {
  for (std::int64_t row = 0; row < block.num_rows; ++row) {
    float* const to = worker.scaled.data() + row * block.depth;
    loops_->scale_row(block, row, worker.scales.data(), to);
    rows[row] = reinterpret_cast<const std::byte*>(to);
  }
  block.rows = rows;
  block.element = RowSource::Element::f32;
}

float* TransposedPlan::result_row(const Slab& slab, std::int64_t row) const {
  return reinterpret_cast<float*>(output_->data + (slab.first_row + row) * output_->stride_bytes);
}

void TransposedPlan::multiply(const JobGraph::Job& job, std::int64_t, int number) {
  const Slab& slab = slabs_[job.slab];
  Worker& worker = workers_[static_cast<std::size_t>(number)];
  worker.results.reserve(JobGraph::kSlabRows * (kTransposedSteps * kStepDepth + kResultGap));
  const Results results = results_of(job, worker);
  if (slab.resume) load_sums(slab, results);
  const std::span<Terms> terms = pack_terms(slab, worker);
  const bool takes_terms = slab.kernel->takes_terms && terms.size() <= kMostTileTerms &&
                           std::ranges::all_of(terms, [&](const Terms& of) {
                             return of.matrix->layout.format == slab.kernel->format;
                           });
  const StreamedRows streamed = streamed_rows(slab, results);
  const bool by_kernel = streamed.data != nullptr && slab.kernel->streams_results &&
                         slab.num_rows > kRowBlock && (takes_terms || terms.empty()) &&
                         results.values.cols() == job.count * kStepDepth;
  const std::byte* place = graph_.place(job.slab);
  for (const TransposedProduct& product : products_) {
    const GemmGroup& group = product.groups[slab.group];
    const bool is_last = &product == &products_.back();
    multiply_by(slab.part_of(group.weights),
                {.kernel = slab.kernel,
                 .rows = place,
                 .num_rows = slab.num_rows,
                 .resume = slab.resume || &product != &products_.front(),
                 .terms = is_last && takes_terms ? terms : std::span<Terms>(),
                 .streamed = is_last && by_kernel ? streamed : StreamedRows()},
                job, worker);
    place += slab.bytes(group);
  }
  if (by_kernel) return;
  if (!takes_terms) add_terms(terms, job, worker);
  store_results(slab, results);
}

/// What kernels of their own add, one after the other.
void TransposedPlan::add_terms(std::span<const Terms> terms, const JobGraph::Job& job,
                               Worker& worker) const {
  for (const Terms& of : terms) {
    multiply_by(*of.matrix,
                {.kernel = &compute_.gemm(of.matrix->layout.format),
                 .rows = of.rows.data(),
                 .num_rows = slabs_[job.slab].num_rows,
                 .resume = true,
                 .terms = {},
                 .streamed = {}},
                job, worker);
  }
}

TransposedPlan::Results TransposedPlan::results_of(const JobGraph::Job& job,
                                                   const Worker& worker) const {
  const Slab& slab = slabs_[job.slab];
  const std::int64_t first = job.first * kStepDepth;
  const std::int64_t count = std::min(job.count * kStepDepth, group_of(slab).weights.depth - first);
  return {first, {worker.results.data(), slab.num_rows, count, result_stride(job)}};
}

/// What the piece before has left in the output.
void TransposedPlan::load_sums(const Slab& slab, const Results& results) const {
  for (std::int64_t row = 0; row < slab.num_rows; ++row) {
    std::copy_n(result_row(slab, row) + results.first, results.values.cols(),
                results.values.row(row).data());
  }
}

void TransposedPlan::store_results(const Slab& slab, const Results& results) const {
  const StreamedRows streamed = streamed_rows(slab, results);
  if (streamed.data != nullptr) {
    loops_->stream_rows(results.values, streamed.data, streamed.stride);
    return;
  }
  for (std::int64_t row = 0; row < slab.num_rows; ++row) store(slab, row, results);
}

/// Where results go if they go out as the floats that they are, and are not read again soon.
StreamedRows TransposedPlan::streamed_rows(const Slab& slab, const Results& results) const {
  const GemmGroup& group = group_of(slab);
  if (output_->element != RowSource::Element::f32 || output_bytes_ < kCachedBytes ||
      slab.depth != 0 || group.weights.order != nullptr ||
      group.epilogue.addend.data() != nullptr) {
    return {};
  }
  const StreamedRows rows{result_row(slab, 0) + results.first, output_->stride_bytes / 4};
  return are_whole_lines(rows.data, rows.stride, results.values.cols()) ? rows : StreamedRows();
}

/// The worker's results [rows, k of the job] = rows times a matrix.
void TransposedPlan::multiply_by(const PackedMatrix& matrix, const Factor& factor,
                                 const JobGraph::Job& job, Worker& worker) const {
  const auto turned_tile = compute_.gemm(matrix.layout.format).turned_tile;
  const std::int64_t at_once = turned_tile != nullptr ? job.count : steps_at_once(matrix);
  worker.scratch.reserve(factor.kernel->scratch_bytes);
  worker.matrices.resize(factor.terms.size());
  worker.tile_terms.clear();
  for (std::size_t i = 0; i < factor.terms.size(); ++i) {
    worker.tile_terms.push_back({factor.terms[i].rows.data(), &worker.matrices[i]});
  }
  for (std::int64_t step = 0; step < job.count; step += at_once) {
    const std::int64_t first = job.first + step;
    const std::int64_t count = std::min(at_once, job.count - step);
    const PackedMatrix transposed = turned_tile != nullptr
                                        ? transposed_shape(matrix, count)
                                        : transpose(matrix, first, count, worker.panels);
    for (std::size_t i = 0; i < factor.terms.size(); ++i) {
      worker.matrices[i] = transpose(*factor.terms[i].matrix, first, count, factor.terms[i].panels);
    }
    const TileArgs args{.packed_rows = factor.rows,
                        .num_rows = factor.num_rows,
                        .matrix = &transposed,
                        .first_panel = 0,
                        .num_panels = 2 * count,
                        .out = worker.results.data() + step * kStepDepth,
                        .out_stride = result_stride(job),
                        .scratch = worker.scratch.data(),
                        .resume = factor.resume,
                        .terms = worker.tile_terms,
                        .streamed = factor.streamed.from_column(step * kStepDepth)};
    turned_tile != nullptr ? turned_tile(args, {&matrix, first}) : factor.kernel->tile(args);
  }
}

/// The same with panels, in `panels`.
PackedMatrix TransposedPlan::transpose(const PackedMatrix& matrix, std::int64_t first,
                                       std::int64_t count, Buffer<std::byte>& panels) const {
  panels.reserve(2 * count * transposed_panel_bytes(matrix));
  transpose_steps({&compute_.gemm(matrix.layout.format), loops_}, matrix, first, count,
                  panels.data());
  PackedMatrix transposed = transposed_shape(matrix, count);
  transposed.panels = panels.data();
  return transposed;
}

/// Of all products whose adapters go along, in their order.
std::span<TransposedPlan::Terms> TransposedPlan::pack_terms(const Slab& slab,
                                                            Worker& worker) const {
  worker.terms.resize(std::max(worker.terms.size(), products_.size()));
  std::size_t count = 0;
  for (const auto& [input, groups] : products_) {
    const LowRank& low_rank = groups[slab.group].epilogue.low_rank;
    if (low_rank.matrix.panels == nullptr) continue;
    Terms& terms = worker.terms[count++];
    terms.matrix = &low_rank.matrix;
    pack_float_rows(compute_.gemm(low_rank.matrix.layout.format),
                    low_rank.inner.row_range(slab.first_row, slab.num_rows), terms.rows);
  }
  return std::span(worker.terms).first(count);
}

/// Each result goes where the input has its k.
void TransposedPlan::store(const Slab& slab, std::int64_t row, const Results& results) const {
  float* const floats = result_row(slab, row);
  auto* const words = reinterpret_cast<BFloat16*>(floats);
  const bool is_f32 = output_->element == RowSource::Element::f32;
  float* const values = results.values.row(row).data();
  const std::int64_t count = results.values.cols();
  add_to(slab, row, results);
  const std::int32_t* const order = group_of(slab).weights.order;
  if (order != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t to = order[results.first + i];
      is_f32 ? void(floats[to] = values[i]) : void(words[to] = to_bfloat16(values[i]));
    }
  } else if (is_f32) {
    std::copy_n(values, count, floats + results.first);
  } else {
    compute_.vector->to_bf16(values, count, words + results.first);
  }
}

/// Adds the addend of the group, if it has one.
void TransposedPlan::add_to(const Slab& slab, std::int64_t row, const Results& results) const {
  const GemmGroup& group = group_of(slab);
  if (group.epilogue.addend.data() == nullptr) return;
  const float* const addend = group.epilogue.addend.row(slab.first_row + row).data();
  float* const values = results.values.row(row).data();
  const std::int64_t count = results.values.cols();
  if (group.weights.order == nullptr) {
    compute_.vector->add(addend + results.first, count, values);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] += addend[group.weights.order[results.first + i]];
  }
}

}  // namespace moesaic
