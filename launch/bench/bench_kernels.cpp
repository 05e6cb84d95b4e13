#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "base/topology.h"
#include "kernels/grouped_gemm.h"
#include "launch/bench/bench_memory.h"
#include "launch/bench/bench_shapes.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/cold_weights.h"
#include "launch/bench/result_table.h"
#include "launch/bench/rival_product.h"
#include "launch/bench/roofs.h"
#include "launch/bench/sample_rows.h"
#include "launch/job/agreement.h"
#include "launch/verbs/verbs.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

/// Threads that products run on, and what they reach at most.
struct Team {
  Team(Communicator& world, int threads, std::span<const std::byte> memory)
      : pool(threads), gauge(world, pool, memory) {}

  ThreadPool pool;
  RoofGauge gauge;
};

/// One line of the table, before the roofs are known.
struct Measurement {
  MatrixShape shape;
  Layout layout;
  std::string_view isa;
  std::int64_t rows;
  const Team* team;
  const MultiplyLoop* loop;  // whose rate is the roof
  double seconds;
  std::int64_t weight_bytes;
  double error;
};

ResultLine make_line(const Measurement& measured) {
  const auto [columns, depth] = measured.shape;
  const double operations = 2.0 * static_cast<double>(measured.rows) *
                            static_cast<double>(columns) * static_cast<double>(depth);
  const auto bytes = static_cast<double>(measured.weight_bytes);
  const RoofGauge& gauge = measured.team->gauge;
  const double compute = operations / gauge.operations_per_second(*measured.loop);
  const double memory = bytes / gauge.bytes_per_second();
  return {{"shape", measured.shape.name(), true},
          {"format", layout_name(measured.layout), true},
          {"isa", std::string(measured.isa), true},
          {"rows", fmt::format("{}", measured.rows)},
          {"threads", fmt::format("{}", measured.team->pool.size())},
          {"us", short_number(measured.seconds * 1e6)},
          {"gops", short_number(operations / measured.seconds / 1e9)},
          {"weight_gbs", short_number(bytes / measured.seconds / 1e9)},
          {"roof", compute > memory ? "compute" : "memory", true},
          {"roof_share", short_number(std::max(compute, memory) / measured.seconds)},
          {"error", fmt::format("{:.2e}", measured.error)}};
}

/// A product that can be measured with several numbers of rows.
struct Contender {
  std::string_view isa;
  const MultiplyLoop* loop;  // whose rate is the roof
  std::function<void(std::int64_t num_rows)> prepare;
  std::function<double()> run;  // one product; its seconds
  ResultAt result;              // of the last product
  std::function<std::int64_t()> weight_bytes;
};

std::vector<std::int64_t> thread_counts(const Options& options) {
  if (!options.thread_counts.empty()) return options.thread_counts;
  const int cores = read_topology().usable_cores;
  return cores > 1 ? std::vector<std::int64_t>{1, cores} : std::vector<std::int64_t>{1};
}

class KernelBench {
 public:
  explicit KernelBench(const Runtime& runtime);
  [[nodiscard]] std::vector<ResultLine> run();
  /// "1 thread: reads 15.2 GB/s, VDPBF16PS zmm 231 GOP/s", a line a team.
  [[nodiscard]] std::vector<std::string> roof_lines() const;

 private:
  /// What all products of a shape and a format share.
  struct Group {
    MatrixShape shape;
    const SampleWeights* weights;
    const SampleRows* rows;
  };

  void run_group(const MatrixShape& shape, const Layout& layout);
  void run_kernel(const Group& group, Isa isa, Team& team, ColdMatrices& matrices);
  void run_rival(const Group& group, Team& team, RivalProduct& rival);
  void measure(const Group& group, Team& team, const Contender& contender);
  void measure_roofs(const MultiplyLoop& loop, Team& team);
  [[nodiscard]] std::vector<Isa> isas(const Layout& layout) const;

  const Runtime* runtime_;
  std::vector<MatrixShape> shapes_;
  std::vector<Layout> layouts_;
  bool has_rival_;
  Buffer<std::byte> memory_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::vector<const MultiplyLoop*> loops_;  // that were measured
  std::vector<Measurement> measured_;
};

KernelBench::KernelBench(const Runtime& runtime)
    : runtime_(&runtime),
      shapes_(parse_shapes(runtime.options().shapes)),
      layouts_(parse_formats(runtime.options().formats)),
      has_rival_(runtime.options().rival == Rival::onednn) {
  const Options& options = runtime.options();
  if (has_rival_) OneDnnRival::require_built_in();
  memory_ = Buffer<std::byte>(cold_bytes(runtime));
  for (const std::int64_t threads : thread_counts(options)) {
    teams_.push_back(
        std::make_unique<Team>(runtime.world(), static_cast<int>(threads), memory_.span()));
  }
}

std::vector<ResultLine> KernelBench::run() {
  Progress progress("groups of products", !runtime_->log().enabled(LogLevel::info),
                    [](std::int64_t count) { return fmt::format("{}", count); });
  std::int64_t done = 0;
  for (const MatrixShape& shape : shapes_) {
    for (const Layout& layout : layouts_) {
      progress.update(done++, std::ssize(shapes_) * std::ssize(layouts_));
      run_group(shape, layout);
    }
  }
  std::vector<ResultLine> lines;
  for (const Measurement& measured : measured_) lines.push_back(make_line(measured));
  return lines;
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
  const std::vector<std::int64_t>& row_counts = runtime_->options().rows;
  const auto element =
      layout.format == Format::f32 ? RowSource::Element::f32 : RowSource::Element::bf16;
  const SampleWeights weights(layout, shape.depth);
  const SampleRows rows(element, *std::ranges::max_element(row_counts), shape.depth);
  const Group group{shape, &weights, &rows};
  ColdMatrices matrices(weights, shape.columns, memory_.span(), teams_.back()->pool);
  for (const Isa isa : isas(layout)) {
    for (const auto& team : teams_) run_kernel(group, isa, *team, matrices);
  }
  if (!has_rival_ || !RivalProduct::exists(layout)) return;
  RivalProduct rival(weights, rows, shape, memory_.span());  // takes the memory of our matrices
  for (const auto& team : teams_) run_rival(group, *team, rival);
}

void KernelBench::measure_roofs(const MultiplyLoop& loop, Team& team) {
  if (std::ranges::find(loops_, &loop) == loops_.end()) loops_.push_back(&loop);
  team.gauge.measure_multiply(loop);
  team.gauge.measure_reads();
}

void KernelBench::run_kernel(const Group& group, Isa isa, Team& team, ColdMatrices& matrices) {
  const std::int64_t columns = group.shape.columns;
  const Compute compute{.isa = isa,
                        .vector = &find_vector_kernels(isa),
                        .pool = &team.pool,
                        .int4_activations = runtime_->compute().int4_activations};
  GroupedGemm gemm(compute);
  RowSource source;
  Buffer<float> out;
  measure(group, team,
          {.isa = isa_name(isa),
           .loop = &find_multiply_loop(compute.gemm(group.weights->layout())),
           .prepare =
               [&](std::int64_t num_rows) {
                 source = group.rows->source(num_rows);
                 out.reserve(num_rows * columns);
               },
           .run =
               [&] {
                 const GemmGroup product{.num_rows = source.num_rows, .weights = matrices.next()};
                 const GemmOutput output{.data = reinterpret_cast<std::byte*>(out.data()),
                                         .stride_bytes = columns * 4};
                 return time_once([&] { gemm.run(source, {&product, 1}, output); });
               },
           .result =
               [&](std::int64_t row, std::int64_t column) {
                 return static_cast<double>(out.data()[row * columns + column]);
               },
           .weight_bytes = [&] { return group.weights->bytes(columns); }});
}

void KernelBench::run_rival(const Group& group, Team& team, RivalProduct& rival) {
  const Format format = group.weights->layout().format;
  const Isa best = find_gemm_kernel(supported_isas().back(), format).isa;
  measure(
      group, team,
      {.isa = "onednn",
       .loop = &find_multiply_loop(best, format),
       .prepare = [&](std::int64_t num_rows) { rival.prepare(num_rows, team.pool.size()); },
       .run = [&] { return time_once([&] { rival.run(); }); },
       .result = [&](std::int64_t row, std::int64_t column) { return rival.result(row, column); },
       .weight_bytes = [&] { return rival.packed_bytes(); }});
}

void KernelBench::measure(const Group& group, Team& team, const Contender& contender) {
  const Options& options = runtime_->options();
  measure_roofs(*contender.loop, team);
  for (const std::int64_t num_rows : options.rows) {
    contender.prepare(num_rows);
    const std::vector<double> seconds = repeat(options.seconds, contender.run);
    measured_.push_back({.shape = group.shape,
                         .layout = group.weights->layout(),
                         .isa = contender.isa,
                         .rows = num_rows,
                         .team = &team,
                         .loop = contender.loop,
                         .seconds = lower_quartile(seconds),
                         .weight_bytes = contender.weight_bytes(),
                         .error = product_error(*group.weights, *group.rows, num_rows,
                                                group.shape.columns, contender.result)});
  }
  measure_roofs(*contender.loop, team);
}

std::vector<std::string> KernelBench::roof_lines() const {
  std::vector<std::string> lines;
  for (const auto& team : teams_) {
    const int threads = team->pool.size();
    std::string& line = lines.emplace_back(
        fmt::format("roofs of {} {}: reads {} GB/s", threads, threads == 1 ? "thread" : "threads",
                    short_number(team->gauge.bytes_per_second() / 1e9)));
    for (const MultiplyLoop* loop : loops_) {
      line += fmt::format(", {} {} GOP/s", loop->instruction,
                          short_number(team->gauge.operations_per_second(*loop) / 1e9));
    }
  }
  return lines;
}

}  // namespace

void run_bench_kernels(Runtime& runtime) {
  agree(runtime.world(), [&] {
    require(runtime.world().size() == 1, ErrorKind::usage,
            "bench kernels measures one process; start it without mpirun");
  });
  KernelBench bench(runtime);
  const std::vector<ResultLine> lines = bench.run();
  fmt::print("{}", result_table(lines, runtime.options().output));
  for (const std::string& line : bench.roof_lines()) {
    runtime.log().once(LogLevel::info, "{}", line);
  }
}

}  // namespace moesaic
