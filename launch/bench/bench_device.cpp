#include "launch/bench/bench_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/cuda/device_roofs.h"
#include "kernels/cuda/grouped_mlps.h"
#include "kernels/nvfp4_activations.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/product_line.h"
#include "launch/bench/result_printer.h"
#include "launch/bench/sample_rows.h"
#include "launch/job/agreement.h"
#include "launch/job/rank_device.h"
#include "launch/options/choices.h"
#include "launch/shapes/named_shapes.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

constexpr double kSecondsOfDeviceGroup = 1;

/// Matrices of one shape in the memory of a GPU, and rows for each: as the second half of gated
/// MLPs, which is a product.
class DeviceMatrices {
 public:
  struct Setup {
    const RankDevice& gpu;
    MatrixShape shape;
    const SampleWeights& weights;
    std::int64_t footprint;  // bytes for matrices, and as many for results
    double deadline_seconds;
  };
  explicit DeviceMatrices(const Setup& setup)
      : setup_(setup),
        device_(*setup.gpu.device),
        panels_(device_.allocate((copies() + 1) * matrix_bytes())),
        mlps_({.device = device_,
               .scratch = scratch_,
               .kernels = setup.gpu.kernels,
               .nvfp4_activations = setup.gpu.nvfp4_activations,
               .library = setup.gpu.library.get()},
              upload()) {}

  [[nodiscard]] std::int64_t matrix_bytes() const {
    return setup_.weights.bytes(setup_.shape.columns);
  }

  /// Gets ready for so many rows a matrix.
  void prepare(const SampleRows& rows, std::int64_t num_rows) {
    const std::int64_t result_bytes = num_rows * setup_.shape.columns * 4;
    num_rows_ = num_rows;
    groups_ = std::clamp<std::int64_t>(setup_.footprint / result_bytes, 1, copies());
    const std::int64_t bytes = num_rows * setup_.shape.depth * 2;
    inputs_ = device_.allocate(groups_ * bytes);
    results_ = device_.allocate(groups_ * result_bytes);
    mlps_.make_room(groups_ * num_rows, 0);
    for (std::int64_t group = 0; group < groups_; ++group) {
      device_.upload(inputs_.address() + static_cast<CudaAddress>(group * bytes), rows.data(),
                     bytes);
    }
    finish();
  }
  /// Seconds of one of the products, all of which are one launch. The next time they are those
  /// of other matrices.
  double run() {
    std::vector<DeviceRows> groups;
    for (std::int64_t group = 0; group < groups_; ++group) {
      const auto matrix = static_cast<std::int32_t>((first_ + group) % copies());
      groups.push_back({matrix, group * num_rows_, num_rows_});
    }
    first_ = (first_ + groups_) % copies();
    return time_once([&] {
             mlps_.start_down(
                 {.x = inputs_.address(), .num_rows = groups_ * num_rows_, .y = results_.address()},
                 groups);
             finish();
           }) /
           static_cast<double>(groups_);
  }
  /// Of the last group's product, with rows as they are multiplied.
  [[nodiscard]] double error(const SampleRows& rows) {
    const std::int64_t columns = setup_.shape.columns;
    std::vector<float> y(static_cast<std::size_t>(num_rows_ * columns));
    const std::int64_t bytes = std::ssize(y) * 4;
    device_.download(y.data(), results_.address() + static_cast<CudaAddress>((groups_ - 1) * bytes),
                     bytes);
    finish();
    const RowValues values = [&](std::int64_t row) {
      std::vector<float> numbers = rows.values(row);
      if (rounds_rows()) round_to_nvfp4(numbers);
      return numbers;
    };
    return product_error(setup_.weights, values, num_rows_, columns,
                         [&](std::int64_t row, std::int64_t column) {
                           return y[static_cast<std::size_t>(row * columns + column)];
                         });
  }

 private:
  [[nodiscard]] std::int64_t copies() const {
    return std::max<std::int64_t>(1, setup_.footprint / matrix_bytes());
  }
  [[nodiscard]] bool rounds_rows() const {
    return setup_.weights.layout().format == Format::nvfp4 &&
           setup_.gpu.nvfp4_activations == Nvfp4Activations::nvfp4;
  }
  void finish() {
    device_.mark();
    device_.wait_for_mark(setup_.deadline_seconds);
  }
  std::vector<MlpWeights> upload() {
    const PinnedBuffer host = device_.allocate_pinned(matrix_bytes());
    PackedMatrix down = setup_.weights.write_matrix(setup_.shape.columns, host.data());
    PackedMatrix gate = down;  // of all, behind the others; which is arranged, and not multiplied
    std::swap(gate.rows, gate.depth);
    std::vector<MlpWeights> mlps;
    for (std::int64_t copy = copies(); copy >= 0; --copy) {
      const CudaAddress at = panels_.address() + static_cast<CudaAddress>(copy * matrix_bytes());
      device_.upload(at, host.data(), matrix_bytes());
      (copy == copies() ? gate : down).panels = reinterpret_cast<const std::byte*>(at);
      if (copy < copies()) mlps.push_back({.gate = gate, .up = gate, .down = down});
    }
    finish();
    return mlps;
  }

  Setup setup_;
  Device& device_;
  DeviceScratch scratch_;
  DeviceBuffer panels_;
  DeviceMlps mlps_;
  std::int64_t num_rows_ = 0;
  std::int64_t groups_ = 0;  // of a run
  std::int64_t first_ = 0;   // matrix of the next run
  DeviceBuffer inputs_;
  DeviceBuffer results_;
};

class DeviceBench {
 public:
  explicit DeviceBench(const Runtime& runtime);
  void run();
  void end() { printer_->end(); }
  /// "roofs of GPU 0 (NVIDIA H100, sm_90, mma): reads 3210 GB/s, products of mma 812000 GOP/s"
  [[nodiscard]] std::string roof_line() const;

 private:
  void run_group(const MatrixShape& shape, const Layout& layout);
  void measure_roofs(const Layout& layout);
  /// Why products of such matrices are not measured; empty: they are.
  [[nodiscard]] std::string missing(const MatrixShape& shape, const Layout& layout) const;
  [[nodiscard]] std::string_view kernels_of(const Layout& layout) const {
    return kernels_name(gpu_.kernels, gpu_.nvfp4_activations, layout.format);
  }
  [[nodiscard]] ProductRoofs roofs(const Layout& layout) const;
  [[nodiscard]] BenchAmount amount() const;
  [[nodiscard]] std::int64_t footprint() const;

  const Runtime* runtime_;
  std::vector<MatrixShape> shapes_;
  std::vector<Layout> layouts_;
  RankDevice gpu_;
  double deadline_seconds_;
  std::optional<DeviceRoofs> roofs_;
  std::optional<ResultPrinter> printer_;
};

DeviceBench::DeviceBench(const Runtime& runtime)
    : runtime_(&runtime),
      shapes_(parse_shapes(runtime.options().shapes)),
      layouts_(parse_formats(runtime.options().formats)),
      gpu_(open_rank_device(runtime, "--device gpu")),
      deadline_seconds_(static_cast<double>(runtime.options().timeout)) {
  const Options& options = runtime.options();
  require(options.gpu_kernel != GpuKernel::cutlass ||
              (options.numerics == Numerics::native &&
               options.nvfp4_activations == Nvfp4Activations::nvfp4),
          ErrorKind::usage,
          "--gpu-kernel cutlass multiplies activations in nvfp4, with bits of its own: it wants "
          "--nvfp4-activations nvfp4 and --numerics native");
  roofs_.emplace(*gpu_.device, deadline_seconds_);
  printer_.emplace(runtime, amount());
}

BenchAmount DeviceBench::amount() const {
  const std::int64_t groups = std::ssize(shapes_) * std::ssize(layouts_);
  return {.lines = groups * std::ssize(runtime_->options().rows),
          .seconds_of_line = 1.25 * runtime_->options().seconds,
          .groups = groups,
          .seconds_of_group = kSecondsOfDeviceGroup};
}

std::int64_t DeviceBench::footprint() const {
  const std::int64_t room = gpu_.available_bytes(runtime_->options()) / 4;
  return std::min(room, runtime_->options().footprint.bytes);
}

void DeviceBench::run() {
  for (const MatrixShape& shape : shapes_) {
    for (const Layout& layout : layouts_) {
      const std::string why = missing(shape, layout);
      if (why.empty()) {
        run_group(shape, layout);
      } else {
        runtime_->log().once(LogLevel::warning, "{} in {} is left out: {}", shape.name(),
                             layout_name(layout), why);
      }
    }
  }
}

std::string DeviceBench::missing(const MatrixShape& shape, const Layout& layout) const {
  const PackedMatrix down = {.layout = layout, .rows = shape.columns, .depth = shape.depth};
  const PackedMatrix gate = {.layout = layout, .rows = shape.depth, .depth = shape.columns};
  std::string why;
  for (const PackedMatrix& matrix : {down, gate}) {
    if (why.empty()) why = missing_on_device(matrix);
    if (why.empty() && gpu_.kernels == DeviceKernels::cutlass) why = missing_for_groups(matrix);
  }
  if (!why.empty()) return why;
  return missing_on_chip(gpu_.device->info(), layout, gpu_.kernels, gpu_.nvfp4_activations);
}

void DeviceBench::measure_roofs(const Layout& layout) {
  roofs_->measure_reads();
  // Of CUTLASS's instructions there is no kernel of our own.
  if (gpu_.kernels != DeviceKernels::cutlass) roofs_->measure_multiply(kernels_of(layout));
}

void DeviceBench::run_group(const MatrixShape& shape, const Layout& layout) {
  runtime_->leave_if_stop_wanted();
  const Options& options = runtime_->options();
  const SampleWeights weights(layout, shape.depth);
  const SampleRows rows(RowSource::Element::bf16, *std::ranges::max_element(options.rows),
                        shape.depth);
  DeviceMatrices matrices({.gpu = gpu_,
                           .shape = shape,
                           .weights = weights,
                           .footprint = footprint(),
                           .deadline_seconds = deadline_seconds_});
  measure_roofs(layout);
  std::vector<ProductFigures> all;  // lines before their roofs are known for good
  for (const std::int64_t num_rows : options.rows) {
    if (runtime_->stop_wanted()) break;
    matrices.prepare(rows, num_rows);
    const std::vector<double> seconds = repeat(options.seconds, [&] { return matrices.run(); });
    all.push_back({.shape = shape,
                   .layout = layout,
                   .rows = num_rows,
                   .seconds = lower_quartile(seconds),
                   .matrix_bytes = matrices.matrix_bytes(),
                   .error = matrices.error(rows)});
  }
  measure_roofs(layout);
  std::vector<ResultLine> lines;
  for (const ProductFigures& measured : all) lines.push_back(product_line(measured, roofs(layout)));
  printer_->add(lines);
  if (all.size() < options.rows.size()) runtime_->leave_if_stop_wanted();
}

ProductRoofs DeviceBench::roofs(const Layout& layout) const {
  const DeviceInfo& chip = gpu_.device->info();
  const auto& operations = roofs_->operations_per_second();
  const auto measured = operations.find(kernels_of(layout));
  return {.isa = fmt::format("sm_{}/{}", chip.chip, kernels_of(layout)),
          .threads = chip.multiprocessors,
          .operations_per_second = measured == operations.end()
                                       ? std::numeric_limits<double>::infinity()
                                       : measured->second,
          .bytes_per_second = roofs_->bytes_per_second()};
}

std::string DeviceBench::roof_line() const {
  std::string line = fmt::format("roofs of {}: reads {} GB/s", gpu_.text(),
                                 short_number(roofs_->bytes_per_second() / 1e9));
  for (const auto& [kernels, operations] : roofs_->operations_per_second()) {
    line += fmt::format(", products of {} {} GOP/s", kernels, short_number(operations / 1e9));
  }
  return line;
}

/// Before shapes are read, which are others for attention.
void require_device_products(const Options& options) {
  const std::string_view op = choice_name(options.op);
  const bool is_attention =
      options.op == ProductOp::attention || options.op == ProductOp::attention_backward;
  require(!is_attention, ErrorKind::usage,
          "--op {}: attention has no kernels for GPUs: it runs on CPUs alone (--device cpu)", op);
  require(options.op == ProductOp::forward, ErrorKind::usage,
          "--device gpu has no products of --op {}, only of --op forward", op);
  require(options.rival == Rival::none, ErrorKind::usage, "--device gpu has no rivals");
}

}  // namespace

void run_bench_device(Runtime& runtime) {
  require_device_products(runtime.options());
  DeviceBench bench(runtime);
  runtime.run_or_end_early("not all lines are there", [&] { bench.run(); });
  bench.end();
  runtime.log().once(LogLevel::info, "{}", bench.roof_line());
}

}  // namespace moesaic
