#include "kernels/gemm_plan.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/prefetch.h"
#include "kernels/nvfp4_activations.h"

namespace moesaic {
namespace {

/// Panels of one job, when there is enough work to share out.
constexpr std::int64_t kMaxJobPanels = 8;
/// Packed bytes below which a further split costs more than it balances.
constexpr std::int64_t kMinJobBytes = std::int64_t{64} << 10;
/// Rows that one job packs.
constexpr std::int64_t kPackRows = 4 * kRowBlock;
/// About this many jobs a thread even out what neighbours on the machine take away.
constexpr std::int64_t kJobsPerThread = 8;

}  // namespace

GemmPlan::GemmPlan(const Compute& compute)
    : compute_(compute), workers_(static_cast<std::size_t>(compute.pool->size())) {}

void GemmPlan::begin(std::size_t num_products) {
  products_.clear();
  products_.reserve(num_products);
  slabs_.clear();
  jobs_.clear();
  packed_bytes_ = 0;
}

void GemmPlan::add_product(Product product, std::int64_t all_panels) {
  product.kernel = &compute_.gemm(product.weights.layout);
  const std::int64_t even_share = all_panels / (kJobsPerThread * compute_.pool->size());
  const std::int64_t least =
      std::clamp<std::int64_t>(kMinJobBytes / product.weights.panel_stride(), 1, kMaxJobPanels);
  // Kernels take panels in pairs.
  product.job_panels = std::min(round_up(std::max(even_share, least), 2), kMaxJobPanels);
  products_.push_back(product);
}

std::size_t GemmPlan::add_slab(std::int64_t first_row, std::int64_t num_rows,
                               std::ptrdiff_t after) {
  const Product& product = products_.back();
  slabs_.push_back({.product = products_.size() - 1,
                    .first_row = first_row,
                    .num_rows = num_rows,
                    .packed_offset = packed_bytes_,
                    .after = after});
  packed_bytes_ +=
      num_rows * static_cast<std::int64_t>(product.kernel->packed_row_bytes(product.weights.depth));
  return slabs_.size() - 1;
}

void GemmPlan::add_pack_jobs(std::size_t slab) {
  const std::int64_t rows = slabs_[slab].num_rows;
  for (std::int64_t row = 0; row < rows; row += kPackRows) {
    jobs_.push_back({Job::Kind::pack, slab, row, std::min(kPackRows, rows - row)});
  }
}

void GemmPlan::add_multiply_jobs(std::size_t slab) {
  const Product& product = products_[slabs_[slab].product];
  const std::int64_t panels = product.weights.num_panels();
  for (std::int64_t panel = 0; panel < panels; panel += product.job_panels) {
    jobs_.push_back(
        {Job::Kind::multiply, slab, panel, std::min(product.job_panels, panels - panel)});
  }
}

/// Asks for the first weights of a job that this thread is likely to do next.
[[gnu::always_inline]] inline void GemmPlan::prefetch_weights(std::int64_t index) const {
  constexpr std::int64_t kLines = 16;  // the CPU's own prefetching goes on from there
  if (index >= std::ssize(jobs_)) return;
  const Job& job = jobs_[static_cast<std::size_t>(index)];
  if (job.kind != Job::Kind::multiply) return;
  prefetch_lines(products_[slabs_[job.slab].product].weights.panel(job.first), kLines);
}

void GemmPlan::execute(const Gating& gating) {
  packed_rows_.reserve(packed_bytes_);
  to_pack_.reset(slabs_.size());
  to_multiply_.reset(slabs_.size());
  for (const Job& job : jobs_) {
    (job.kind == Job::Kind::pack ? to_pack_ : to_multiply_).add(job.slab);
  }
  compute_.pool->parallel_for(std::ssize(jobs_), [&](std::int64_t index, int worker) {
    const Job& job = jobs_[static_cast<std::size_t>(index)];
    Worker& own = workers_[static_cast<std::size_t>(worker)];
    if (job.kind == Job::Kind::pack) {
      pack(job, own);
      return;
    }
    prefetch_weights(index + compute_.pool->size());
    multiply(job, gating, own);
  });
}

GemmOutput GemmPlan::inner_output(std::int64_t num_rows, std::int64_t width,
                                  RowSource::Element element) {
  const std::int64_t stride = width * element_bytes(element);
  inner_.reserve(num_rows * stride);
  inner_rows_.clear();
  for (std::int64_t row = 0; row < num_rows; ++row) {
    inner_rows_.push_back(inner_.data() + row * stride);
  }
  return {.data = inner_.data(), .stride_bytes = stride, .element = element};
}

std::byte* GemmPlan::packed_row(const Slab& slab, std::int64_t row) {
  const Product& product = products_[slab.product];
  return packed_rows_.data() + slab.packed_offset +
         row * static_cast<std::int64_t>(product.kernel->packed_row_bytes(product.weights.depth));
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
void GemmPlan::round_block(RowSource& block, Worker& worker, const std::byte** rows) {
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
    round_to_nvfp4(to);
    rows[row] = reinterpret_cast<const std::byte*>(to.data());
  }
  block.rows = rows;
  block.element = RowSource::Element::f32;
}

void GemmPlan::pack(const Job& job, Worker& worker) {
  const Slab& slab = slabs_[job.slab];
  const Product& product = products_[slab.product];
  if (slab.after >= 0) to_multiply_.wait(static_cast<std::size_t>(slab.after));
  for (std::int64_t row = job.first; row < job.first + job.count; row += kRowBlock) {
    RowSource block = *product.input;
    block.rows += slab.first_row + row;
    block.num_rows = std::min(kRowBlock, job.first + job.count - row);
    const std::byte* changed[kRowBlock];
    if (product.weights.order != nullptr) {
      gather(block, product.weights.order, worker, changed);
      block.rows = changed;
    }
    if (product.weights.layout.format == Format::nvfp4 &&
        compute_.nvfp4_activations == Nvfp4Activations::nvfp4) {
      round_block(block, worker, changed);
    }
    product.kernel->pack_rows(block, packed_row(slab, row));
  }
  to_pack_.done(job.slab);
}

void GemmPlan::multiply(const Job& job, const Gating& gating, Worker& worker) {
  const Slab& slab = slabs_[job.slab];
  const Product& product = products_[slab.product];
  const bool gated = product.up.panels != nullptr;
  const std::int64_t stride = job.count * kPanelColumns;
  worker.results.reserve(2 * kSlabRows * kMaxJobPanels * kPanelColumns);
  worker.scratch.reserve(product.kernel->scratch_bytes);
  to_pack_.wait(job.slab);
  TileArgs args{.packed_rows = packed_row(slab, 0),
                .num_rows = slab.num_rows,
                .matrix = &product.weights,
                .first_panel = job.first,
                .num_panels = job.count,
                .out = worker.results.data(),
                .out_stride = stride,
                .scratch = worker.scratch.data()};
  product.kernel->tile(args);
  if (gated) {
    args.matrix = &product.up;
    args.out += slab.num_rows * stride;
    product.kernel->tile(args);
  }
  finish(job, gating, worker);
  to_multiply_.done(job.slab);
}

/// Bias, gating and rounding, while the results are in the cache.
void GemmPlan::finish(const Job& job, const Gating& gating, Worker& worker) const {
  const Slab& slab = slabs_[job.slab];
  const Product& product = products_[slab.product];
  const VectorKernels& vector = *compute_.vector;
  const std::int64_t stride = job.count * kPanelColumns;
  const std::int64_t first_column = job.first * kPanelColumns;
  const std::int64_t columns = std::min(stride, product.weights.rows - first_column);
  for (std::int64_t row = 0; row < slab.num_rows; ++row) {
    float* const values = worker.results.data() + row * stride;
    if (product.bias != nullptr) vector.add(product.bias + first_column, columns, values);
    if (product.up.panels != nullptr) {
      float* const up = values + slab.num_rows * stride;
      if (product.up_bias != nullptr) vector.add(product.up_bias + first_column, columns, up);
      vector.gate(gating, up, columns, values);
    }
    std::byte* const out =
        product.output.data + (slab.first_row + row) * product.output.stride_bytes;
    if (product.output.element == RowSource::Element::bf16) {
      vector.to_bf16(values, columns, reinterpret_cast<BFloat16*>(out) + first_column);
    } else {
      std::copy_n(values, columns, reinterpret_cast<float*>(out) + first_column);
    }
  }
}

}  // namespace moesaic
