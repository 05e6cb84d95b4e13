#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "kernels/grouped_gemm.h"
#include "launch/bench/bench_attention.h"
#include "launch/bench/bench_device.h"
#include "launch/bench/bench_memory.h"
#include "launch/bench/bench_team.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/measured_product.h"
#include "launch/bench/product_line.h"
#include "launch/bench/result_printer.h"
#include "launch/bench/rival_product.h"
#include "launch/bench/roofs.h"
#include "launch/bench/sample_rows.h"
#include "launch/job/agreement.h"
#include "launch/job/verbs.h"
#include "launch/options/choices.h"
#include "launch/shapes/cold_weights.h"
#include "launch/shapes/named_shapes.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

/// A product, under a name.
struct Contender {
  std::string_view isa;
  const MultiplyLoop* loop;  // whose rate is the roof
  MeasuredProduct* product;
};

/// oneDNN's.
class MeasuredRival final : public MeasuredProduct {
 public:
  MeasuredRival(const ProductBed& bed, RivalProduct& rival, int threads)
      : bed_(bed), rival_(&rival), threads_(threads) {}

  void prepare(std::int64_t num_rows) override {
    num_rows_ = num_rows;
    rival_->prepare(num_rows, threads_);
  }
  void run() override { rival_->run(); }
  [[nodiscard]] double error() const override {
    return product_error(*bed_.weights, *bed_.inputs, num_rows_, bed_.shape.columns,
                         [this](auto row, auto column) { return rival_->result(row, column); });
  }
  [[nodiscard]] std::int64_t matrix_bytes() const override { return rival_->packed_bytes(); }

 private:
  ProductBed bed_;
  RivalProduct* rival_;
  int threads_;
  std::int64_t num_rows_ = 0;
};

/// Weights are packed, and roofs measured, before and after.
constexpr double kSecondsOfGroup = 1.5;
/// The last run ends late, the first does not count, and results are compared.
constexpr double kRunsOfLine = 1.25;

/// Products over rows have no weights, and two formats.
void keep_plain(std::vector<Layout>& layouts) {
  std::erase_if(layouts, [](const Layout& layout) {
    return layout.format != Format::bf16 && layout.format != Format::f32;
  });
  require(!layouts.empty(), ErrorKind::usage,
          "--op outer has products in bf16 and f32, and --formats names neither");
}

/// Of weights, or of results that rotate.
std::int64_t largest_matrix(ProductOp op, const std::vector<MatrixShape>& shapes,
                            const std::vector<Layout>& layouts) {
  std::int64_t bytes = 0;
  for (const MatrixShape& shape : shapes) {
    for (const Layout& layout : layouts) {
      bytes = std::max(bytes, matrix_bytes(layout, shape.columns, shape.depth));
    }
    if (op == ProductOp::outer) {
      bytes = std::max(bytes, matrix_bytes({.format = Format::f32}, shape.columns, shape.depth));
    }
  }
  return bytes;
}

class KernelBench {
 public:
  explicit KernelBench(const Runtime& runtime);
  void run();
  void end() {
    printer_->end();
    log_roofs(*runtime_, teams_);
  }

 private:
  void run_group(const MatrixShape& shape, const Layout& layout);
  void run_kernel(const ProductBed& bed, Isa isa, Team& team);
  void run_rival(const ProductBed& bed, Team& team, RivalProduct& rival);
  void measure(const ProductBed& bed, Team& team, const Contender& contender);
  [[nodiscard]] BenchAmount amount() const;
  [[nodiscard]] std::vector<Isa> isas(const Layout& layout) const;
  /// The format of the kernel that does the products.
  [[nodiscard]] Layout product_layout(const Layout& layout) const;

  const Runtime* runtime_;
  ProductOp op_;
  std::vector<MatrixShape> shapes_;
  std::vector<Layout> layouts_;
  bool has_rival_;
  Buffer<std::byte> memory_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::optional<ResultPrinter> printer_;
};

KernelBench::KernelBench(const Runtime& runtime)
    : runtime_(&runtime),
      op_(runtime.options().op),
      shapes_(parse_shapes(runtime.options().shapes)),
      layouts_(parse_formats(runtime.options().formats)),
      has_rival_(runtime.options().rival == Rival::onednn) {
  if (has_rival_) OneDnnRival::require_built_in();
  require(!has_rival_ || op_ == ProductOp::forward, ErrorKind::usage,
          "--rival onednn has no products of --op {}", choice_name(op_));
  if (op_ == ProductOp::outer) keep_plain(layouts_);
  require_cold_bytes(runtime, largest_matrix(op_, shapes_, layouts_), "matrices");
  memory_ = Buffer<std::byte>(cold_bytes(runtime));
  teams_ = make_teams(runtime, memory_.span());
  printer_.emplace(runtime, amount());
}

BenchAmount KernelBench::amount() const {
  std::int64_t contenders = 0;  // of one shape and number of threads
  for (const Layout& layout : layouts_) {
    contenders += std::ssize(isas(product_layout(layout)));
    if (has_rival_ && RivalProduct::exists(layout)) ++contenders;
  }
  const std::int64_t groups = std::ssize(shapes_) * contenders * std::ssize(teams_);
  return {.lines = groups * std::ssize(runtime_->options().rows),
          .seconds_of_line = kRunsOfLine * runtime_->options().seconds,
          .groups = groups,
          .seconds_of_group = kSecondsOfGroup};
}

void KernelBench::run() {
  for (const MatrixShape& shape : shapes_) {
    for (const Layout& layout : layouts_) run_group(shape, layout);
  }
}

Layout KernelBench::product_layout(const Layout& layout) const {
  if (op_ == ProductOp::forward || layout.format == Format::f32) return layout;
  return {.format = Format::bf16};
}

std::vector<Isa> KernelBench::isas(const Layout& layout) const {
  const GemmKernel& nearest = runtime_->compute().gemm(layout);
  if (!runtime_->options().isa.all) return {nearest.isa};
  std::vector<Isa> isas;
  for (const GemmKernel* kernel : all_gemm_kernels()) {
    const bool fits =
        kernel->format == nearest.format && kernel->int4_activations == nearest.int4_activations;
    if (fits && is_usable(*kernel)) isas.push_back(kernel->isa);
  }
  return isas;
}

void KernelBench::run_group(const MatrixShape& shape, const Layout& layout) {
  const std::int64_t most_rows = *std::ranges::max_element(runtime_->options().rows);
  const auto element =
      layout.format == Format::f32 ? RowSource::Element::f32 : RowSource::Element::bf16;
  const SampleWeights weights(layout, shape.depth);
  const SampleRows inputs(element, most_rows, shape.depth);
  const SampleRows gradients(element, op_ == ProductOp::forward ? 0 : most_rows, shape.columns);
  ColdMatrices matrices(weights, shape.columns, memory_.span(), teams_.back()->pool);
  const ProductBed bed{shape, &weights, &inputs, &gradients, &matrices, memory_.span()};
  for (const Isa isa : isas(product_layout(layout))) {
    for (const auto& team : teams_) run_kernel(bed, isa, *team);
  }
  if (!has_rival_ || !RivalProduct::exists(layout)) return;
  RivalProduct rival(weights, inputs, shape, memory_.span());  // takes the memory of our matrices
  for (const auto& team : teams_) run_rival(bed, *team, rival);
}

void KernelBench::run_kernel(const ProductBed& bed, Isa isa, Team& team) {
  const Compute compute{.isa = isa,
                        .vector = &find_vector_kernels(isa),
                        .pool = &team.pool,
                        .int4_activations = runtime_->compute().int4_activations};
  const std::unique_ptr<MeasuredProduct> product = make_product(op_, bed, compute);
  const GemmKernel& kernel = compute.gemm(product_layout(bed.weights->layout()));
  measure(bed, team, {isa_name(isa), &find_multiply_loop(kernel), product.get()});
}

void KernelBench::run_rival(const ProductBed& bed, Team& team, RivalProduct& rival) {
  const Format format = bed.weights->layout().format;
  const Isa best = find_gemm_kernel(supported_isas().back(), format).isa;
  MeasuredRival product(bed, rival, team.pool.size());
  measure(bed, team, {"onednn", &find_multiply_loop(best, format), &product});
}

void KernelBench::measure(const ProductBed& bed, Team& team, const Contender& contender) {
  runtime_->leave_if_stop_wanted();
  const Options& options = runtime_->options();
  std::vector<ProductFigures> all;  // lines before their roofs are known for good
  team.measure_roofs(*contender.loop);
  for (const std::int64_t num_rows : options.rows) {
    if (runtime_->stop_wanted()) break;
    contender.product->prepare(num_rows);
    const std::vector<double> seconds =
        repeat(options.seconds, [&] { return time_once([&] { contender.product->run(); }); });
    all.push_back({.op = op_,
                   .shape = bed.shape,
                   .layout = bed.weights->layout(),
                   .rows = num_rows,
                   .seconds = lower_quartile(seconds),
                   .matrix_bytes = contender.product->matrix_bytes(),
                   .error = contender.product->error()});
  }
  team.measure_roofs(*contender.loop);
  const ProductRoofs roofs{
      .isa = std::string(contender.isa),
      .threads = team.pool.size(),
      .operations_per_second = team.gauge.operations_per_second(*contender.loop),
      .bytes_per_second = team.gauge.bytes_per_second()};
  std::vector<ResultLine> lines;
  for (const ProductFigures& measured : all) lines.push_back(product_line(measured, roofs));
  printer_->add(lines);
  if (all.size() < options.rows.size()) runtime_->leave_if_stop_wanted();
}

}  // namespace

void run_bench_kernels(Runtime& runtime) {
  agree(runtime.world(), [&] {
    require(runtime.world().size() == 1, ErrorKind::usage,
            "bench kernels measures one process; start it without mpirun");
  });
  const ProductOp op = runtime.options().op;
  const bool is_attention = op == ProductOp::attention || op == ProductOp::attention_backward;
  require(is_attention || source_of(runtime.command(), "keys") == OptionSource::preset,
          ErrorKind::usage, "--keys is for --op attention and attention-backward, not --op {}",
          choice_name(op));
  if (runtime.options().device == Processor::gpu) return run_bench_device(runtime);
  require(runtime.options().gpu_kernel == GpuKernel::mma, ErrorKind::usage,
          "--gpu-kernel cutlass is for --device gpu");
  require(runtime.options().nvfp4_activations == Nvfp4Activations::bf16, ErrorKind::usage,
          "--nvfp4-activations nvfp4 is for --device gpu: on CPUs products are those of bf16");
  if (is_attention) return run_bench_attention(runtime);
  KernelBench bench(runtime);
  runtime.run_or_end_early("not all lines are there", [&] { bench.run(); });
  bench.end();
}

}  // namespace moesaic
