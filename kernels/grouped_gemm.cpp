#include "kernels/grouped_gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/job_counters.h"
#include "kernels/nvfp4_activations.h"
#include "src/base/buffer.h"
#include "src/base/error.h"

namespace moesaic {
namespace {

/// Rows of one slab: their packed form and a few panels stay in a core's L2 cache together.
constexpr std::int64_t kSlabRows = 256;
/// Panels of one job, when there is enough work to share out.
constexpr std::int64_t kMaxJobPanels = 8;
/// Packed bytes below which a further split costs more than it balances.
constexpr std::int64_t kMinJobBytes = std::int64_t{64} << 10;
/// Rows that one job packs.
constexpr std::int64_t kPackRows = 4 * kRowBlock;
/// About this many jobs a thread even out what neighbours on the machine take away.
constexpr std::int64_t kJobsPerThread = 8;

using Element = RowSource::Element;

/// A matrix of another form would be read beyond its end.
void check_group(const RowSource& input, std::int64_t first_row, std::int64_t num_rows,
                 const PackedMatrix& weights) {
  require(weights.depth == input.depth && first_row >= 0 && num_rows >= 0 &&
              first_row + num_rows <= input.num_rows,
          ErrorKind::internal,
          "a product of rows {} to {} of {}, depth {}, with a {} matrix {} x {}", first_row,
          first_row + num_rows, input.num_rows, input.depth, format_name(weights.layout.format),
          weights.rows, weights.depth);
}

bool same_order(const PackedMatrix& a, const PackedMatrix& b) {
  if (a.order == b.order) return true;
  return a.order != nullptr && b.order != nullptr &&
         std::equal(a.order, a.order + a.depth, b.order);
}

void check_mlp(const MlpGroup& group, std::int64_t width) {
  const PackedMatrix& gate = group.gate;
  const PackedMatrix& up = group.up;
  require(up.layout == gate.layout && up.depth == gate.depth && up.rows == gate.rows &&
              same_order(gate, up) && gate.rows == width && group.down.depth == width,
          ErrorKind::internal,
          "an MLP of width {} with a gate of {} x {} {}, an up matrix of {} x {} {} and a down "
          "matrix of {} x {}",
          width, gate.rows, gate.depth, format_name(gate.layout.format), up.rows, up.depth,
          format_name(up.layout.format), group.down.rows, group.down.depth);
}

/// One product of a group: what its slabs have in common.
struct Product {
  const GemmKernel* kernel;
  const RowSource* input;
  GemmOutput output;
  PackedMatrix weights;
  PackedMatrix up{};  // if panels != nullptr, results are gated with those of this matrix
  const float* bias = nullptr;
  const float* up_bias = nullptr;
  std::int64_t job_panels = 0;
};

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

/// Rows of a block, their elements in the order in which the matrix has its k.
void gather(const RowSource& block, const std::int32_t* order, Worker& worker,
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
void round_block(RowSource& block, Worker& worker, const std::byte** rows) {
  worker.rounded.resize(static_cast<std::size_t>(kRowBlock * block.depth));
  for (std::int64_t row = 0; row < block.num_rows; ++row) {
    const std::span<float> to = std::span(worker.rounded)
                                    .subspan(static_cast<std::size_t>(row * block.depth),
                                             static_cast<std::size_t>(block.depth));
    if (block.element == Element::f32) {
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
  block.element = Element::f32;
}

}  // namespace

class GroupedGemm::Plan {
 public:
  explicit Plan(const Compute& compute)
      : compute_(compute), workers_(static_cast<std::size_t>(compute.pool->size())) {}

  void begin(std::size_t num_products) {
    products_.clear();
    products_.reserve(num_products);
    slabs_.clear();
    jobs_.clear();
    packed_bytes_ = 0;
  }

  /// The matrix of a product that all groups together have `all_panels` panels for.
  void add_product(Product product, std::int64_t all_panels) {
    product.kernel = &compute_.gemm(product.weights.layout);
    const std::int64_t even_share = all_panels / (kJobsPerThread * compute_.pool->size());
    const std::int64_t least =
        std::clamp<std::int64_t>(kMinJobBytes / product.weights.panel_stride(), 1, kMaxJobPanels);
    // Kernels take panels in pairs.
    product.job_panels = std::min(round_up(std::max(even_share, least), 2), kMaxJobPanels);
    products_.push_back(product);
  }

  /// Rows of the product that was added last.
  std::size_t add_slab(std::int64_t first_row, std::int64_t num_rows, std::ptrdiff_t after = -1) {
    const Product& product = products_.back();
    slabs_.push_back({.product = products_.size() - 1,
                      .first_row = first_row,
                      .num_rows = num_rows,
                      .packed_offset = packed_bytes_,
                      .after = after});
    packed_bytes_ += num_rows * static_cast<std::int64_t>(
                                    product.kernel->packed_row_bytes(product.weights.depth));
    return slabs_.size() - 1;
  }

  void add_pack_jobs(std::size_t slab) {
    const std::int64_t rows = slabs_[slab].num_rows;
    for (std::int64_t row = 0; row < rows; row += kPackRows) {
      jobs_.push_back({Job::Kind::pack, slab, row, std::min(kPackRows, rows - row)});
    }
  }

  void add_multiply_jobs(std::size_t slab) {
    const Product& product = products_[slabs_[slab].product];
    const std::int64_t panels = product.weights.num_panels();
    for (std::int64_t panel = 0; panel < panels; panel += product.job_panels) {
      jobs_.push_back(
          {Job::Kind::multiply, slab, panel, std::min(product.job_panels, panels - panel)});
    }
  }

  void execute(const Gating& gating) {
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

  /// Where the inner activations of MLPs lie: [num_rows, width].
  GemmOutput inner_output(std::int64_t num_rows, std::int64_t width, Element element) {
    const std::int64_t stride = width * element_bytes(element);
    inner_.reserve(num_rows * stride);
    inner_rows_.clear();
    for (std::int64_t row = 0; row < num_rows; ++row) {
      inner_rows_.push_back(inner_.data() + row * stride);
    }
    return {.data = inner_.data(), .stride_bytes = stride, .element = element};
  }
  [[nodiscard]] const std::byte* const* inner_rows() const { return inner_rows_.data(); }

 private:
  /// Asks for the first weights of a job that this thread is likely to do next. Inlined, or GCC
  /// would drop calls of it as having no effect.
  [[gnu::always_inline]] void prefetch_weights(std::int64_t index) const {
    constexpr std::int64_t kBytes = 1024;  // the CPU's own prefetching goes on from there
    if (index >= std::ssize(jobs_)) return;
    const Job& job = jobs_[static_cast<std::size_t>(index)];
    if (job.kind != Job::Kind::multiply) return;
    const std::byte* weights = products_[slabs_[job.slab].product].weights.panel(job.first);
    for (std::int64_t i = 0; i < kBytes; i += 64) __builtin_prefetch(weights + i, 0, 2);
  }

  [[nodiscard]] std::byte* packed_row(const Slab& slab, std::int64_t row) {
    const Product& product = products_[slab.product];
    return packed_rows_.data() + slab.packed_offset +
           row * static_cast<std::int64_t>(product.kernel->packed_row_bytes(product.weights.depth));
  }

  void pack(const Job& job, Worker& worker) {
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

  void multiply(const Job& job, const Gating& gating, Worker& worker) {
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
  void finish(const Job& job, const Gating& gating, Worker& worker) const {
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
      if (product.output.element == Element::bf16) {
        vector.to_bf16(values, columns, reinterpret_cast<BFloat16*>(out) + first_column);
      } else {
        std::copy_n(values, columns, reinterpret_cast<float*>(out) + first_column);
      }
    }
  }

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

GroupedGemm::GroupedGemm(const Compute& compute) : plan_(std::make_unique<Plan>(compute)) {}

GroupedGemm::~GroupedGemm() = default;

void GroupedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                      const GemmOutput& output) {
  std::int64_t all_panels = 0;  // times slabs
  for (const GemmGroup& group : groups) {
    check_group(input, group.first_row, group.num_rows, group.weights);
    all_panels += group.weights.num_panels() * ((group.num_rows + kSlabRows - 1) / kSlabRows);
  }
  plan_->begin(groups.size());
  std::vector<std::size_t> slabs;
  for (const GemmGroup& group : groups) {
    plan_->add_product({.kernel = nullptr,
                        .input = &input,
                        .output = output,
                        .weights = group.weights,
                        .bias = group.bias},
                       all_panels);
    for (std::int64_t row = 0; row < group.num_rows; row += kSlabRows) {
      slabs.push_back(
          plan_->add_slab(group.first_row + row, std::min(kSlabRows, group.num_rows - row)));
    }
  }
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    if (i == 0) plan_->add_pack_jobs(slabs[i]);
    if (i + 1 < slabs.size()) plan_->add_pack_jobs(slabs[i + 1]);  // before it is waited for
    plan_->add_multiply_jobs(slabs[i]);
  }
  plan_->execute({});
}

void GroupedGemm::run_mlp(const RowSource& input, std::span<const MlpGroup> groups,
                          const Gating& gating, const GemmOutput& output) {
  if (groups.empty()) return;
  const std::int64_t width = groups.front().gate.rows;
  std::int64_t inner_panels = 0;  // times slabs
  std::int64_t outer_panels = 0;
  for (const MlpGroup& group : groups) {
    check_group(input, group.first_row, group.num_rows, group.gate);
    check_mlp(group, width);
    const std::int64_t slabs = (group.num_rows + kSlabRows - 1) / kSlabRows;
    inner_panels += 2 * slabs * group.gate.num_panels();
    outer_panels += slabs * group.down.num_panels();
  }
  const GemmOutput inner = plan_->inner_output(input.num_rows, width, input.element);
  const RowSource inner_input{.rows = plan_->inner_rows(),
                              .num_rows = input.num_rows,
                              .depth = width,
                              .element = input.element};
  struct SlabPair {
    std::size_t inner;
    std::size_t outer;
  };
  std::vector<SlabPair> slabs;
  plan_->begin(2 * groups.size());
  for (const MlpGroup& group : groups) {
    const std::size_t first = slabs.size();
    plan_->add_product({.kernel = nullptr,
                        .input = &input,
                        .output = inner,
                        .weights = group.gate,
                        .up = group.up,
                        .bias = group.gate_bias,
                        .up_bias = group.up_bias},
                       inner_panels);
    for (std::int64_t row = 0; row < group.num_rows; row += kSlabRows) {
      const std::int64_t rows = std::min(kSlabRows, group.num_rows - row);
      slabs.push_back({plan_->add_slab(group.first_row + row, rows), 0});
    }
    plan_->add_product({.kernel = nullptr,
                        .input = &inner_input,
                        .output = output,
                        .weights = group.down,
                        .bias = group.down_bias},
                       outer_panels);
    for (std::size_t i = first; i < slabs.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i - first) * kSlabRows;
      slabs[i].outer =
          plan_->add_slab(group.first_row + row, std::min(kSlabRows, group.num_rows - row),
                          static_cast<std::ptrdiff_t>(slabs[i].inner));
    }
  }
  if (slabs.empty()) return;
  if (slabs.empty()) return;
  // The outer product of a slab comes one slab after its inner one: while its last inner jobs are
  // at work, the other threads have the next slab's to do.
  for (std::size_t i = 0; i <= slabs.size(); ++i) {
    if (i == 0) plan_->add_pack_jobs(slabs[0].inner);
    if (i + 1 < slabs.size()) plan_->add_pack_jobs(slabs[i + 1].inner);
    if (i < slabs.size()) plan_->add_multiply_jobs(slabs[i].inner);
    if (i == 0) continue;
    plan_->add_pack_jobs(slabs[i - 1].outer);
    plan_->add_multiply_jobs(slabs[i - 1].outer);
  }
  plan_->execute(gating);
}

}  // namespace moesaic
