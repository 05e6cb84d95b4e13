#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/memory.h"
#include "launch/bench/bench_memory.h"
#include "launch/bench/layer_gpu.h"
#include "launch/bench/layer_run.h"
#include "launch/bench/result_printer.h"
#include "launch/bench/roofs.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/memory_check.h"
#include "launch/job/verbs.h"
#include "launch/shapes/named_shapes.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

/// What the options ask for.
struct Plan {
  std::vector<LayerShape> layers;
  std::vector<Layout> layouts;
  std::vector<RoutingKind> routings;
  std::int64_t memory_bytes = 0;  // of this rank, for weights
};

/// Memory that weights rotate over, or more for a layer that is larger, if half of what there is
/// suffices.
std::int64_t weight_memory(const Runtime& runtime, const Plan& plan) {
  const std::int64_t spare = spare_memory(runtime) / 2;
  std::int64_t bytes = cold_bytes(runtime);
  const int ranks = runtime.grid().experts().size();
  for (const LayerShape& shape : plan.layers) {
    const ExpertPlacement placement(shape.experts, ranks);
    for (const Layout& layout : plan.layouts) {
      const std::int64_t wanted =  // of rank 0, which has as many experts as any
          round_up(layer_bytes(shape, layout, placement.num_local_experts(0)), 1 << 20);
      if (wanted <= spare) bytes = std::max(bytes, wanted);
    }
  }
  return bytes;
}

Plan make_plan(const Runtime& runtime) {
  const Options& options = runtime.options();
  Plan plan;
  plan.layers = parse_layers(options.layers);
  plan.layouts = parse_formats(options.formats);
  plan.routings = routing_kinds(options.routing);
  plan.memory_bytes = weight_memory(runtime, plan);
  return plan;
}

/// Experts are packed, and roofs measured, before and after.
constexpr double kSecondsOfGroup = 3;
/// A layer is measured beside its parts, which take as long, and its exchange, and the first runs
/// do not count.
constexpr double kRunsOfLine = 2.5;

/// One line of the table, before its last roofs are known.
struct Measurement {
  LayerShape shape;
  Layout layout;
  Isa isa;  // of the experts' kernels
  RoutingKind routing;
  std::int64_t tokens;
  double operations;  // of all ranks
  double bytes;       // of all experts that were chosen
  LayerTimes times;
};

class LayerBench {
 public:
  LayerBench(const Runtime& runtime, const Plan& plan);
  void run();
  void end() { printer_.end(); }

 private:
  void run_layer(const LayerShape& shape, const Layout& layout);
  /// And kernels, where it is to be on GPUs.
  [[nodiscard]] bool has_room(const LayerShape& shape, const Layout& layout) const;
  [[nodiscard]] LayerRouting routing(RoutingKind kind, const LayerShape& shape,
                                     std::int64_t tokens) const {
    const int ranks = runtime_->grid().experts().size();
    return {kind, shape, tokens * ranks,
            ExpertPlacement(shape.experts, ranks).num_local_experts(0)};
  }
  /// Rows of the expert that has the most in any test.
  [[nodiscard]] std::int64_t most_rows(const LayerShape& shape) const;
  void measure_roofs(const LayerShape& shape, const Layout& layout);
  /// Which share of a layer's experts is on GPUs.
  [[nodiscard]] double on_gpus(const LayerShape& shape) const;
  [[nodiscard]] double roof_seconds(const Measurement& measured, const LayerGpu::Roofs& gpu) const;
  [[nodiscard]] std::string isa_text(const Measurement& measured, const LayerGpu::Roofs& gpu) const;
  [[nodiscard]] ResultLine make_line(const Measurement& measured, const LayerGpu::Roofs& gpu) const;

  const Runtime* runtime_;
  const Plan* plan_;
  Buffer<std::byte> memory_;
  LayerGpu gpu_;
  RoofGauge gauge_;
  ResultPrinter printer_;
};

BenchAmount amount(const Runtime& runtime, const Plan& plan) {
  const std::int64_t groups = std::ssize(plan.layers) * std::ssize(plan.layouts);
  return {.lines = groups * std::ssize(plan.routings) * std::ssize(runtime.options().tokens),
          .seconds_of_line = kRunsOfLine * runtime.options().seconds,
          .groups = groups,
          .seconds_of_group = kSecondsOfGroup};
}

LayerBench::LayerBench(const Runtime& runtime, const Plan& plan)
    : runtime_(&runtime),
      plan_(&plan),
      memory_(plan.memory_bytes),
      gpu_(runtime, plan.layers),
      gauge_(runtime.world(), *runtime.compute().pool, memory_.span()),
      printer_(runtime, amount(runtime, plan)) {}

void LayerBench::run() {
  for (const LayerShape& shape : plan_->layers) {
    for (const Layout& layout : plan_->layouts) {
      if (has_room(shape, layout)) run_layer(shape, layout);
    }
  }
}

bool LayerBench::has_room(const LayerShape& shape, const Layout& layout) const {
  const Communicator& experts = runtime_->grid().experts();
  const ExpertPlacement placement(shape.experts, experts.size());
  const std::int64_t wanted =
      layer_bytes(shape, layout, placement.num_local_experts(experts.rank()));
  const std::vector<std::int64_t> rooms = gather_values(runtime_->world(), memory_.size() - wanted);
  const std::int64_t room = *std::ranges::min_element(rooms);
  if (room < 0) {
    runtime_->log().once(LogLevel::warning,
                         "layer {} in {} is left out: a rank lacks {} of memory for it",
                         shape.name(), layout_name(layout), format_bytes(-room));
  }
  const std::string missing = gpu_.missing(shape, layout);
  if (!missing.empty()) {
    runtime_->log().once(LogLevel::warning, "layer {} in {} is left out: {}", shape.name(),
                         layout_name(layout), missing);
  }
  return room >= 0 && missing.empty();
}

std::int64_t LayerBench::most_rows(const LayerShape& shape) const {
  std::int64_t most = 0;
  for (const RoutingKind kind : plan_->routings) {
    for (const std::int64_t tokens : runtime_->options().tokens) {
      const auto rows = routing(kind, shape, tokens).rows_of_experts();
      most = std::max(most, *std::ranges::max_element(rows));
    }
  }
  return most;
}

void LayerBench::run_layer(const LayerShape& shape, const Layout& layout) {
  runtime_->leave_if_stop_wanted();
  const GemmKernel& kernel = runtime_->compute().gemm(layout);
  const double replicas = static_cast<double>(runtime_->grid().expert_replicas());
  std::vector<Measurement> all;
  LayerRun layer(*runtime_, shape, layout, most_rows(shape), gpu_.place(shape, memory_.span()));
  measure_roofs(shape, layout);
  for (const RoutingKind kind : plan_->routings) {
    for (const std::int64_t tokens : runtime_->options().tokens) {
      if (runtime_->stop_wanted()) break;
      const LayerRouting choices = routing(kind, shape, tokens);
      const std::vector<std::int64_t> rows = choices.rows_of_experts();
      const auto chosen = std::ranges::count_if(rows, [](std::int64_t n) { return n > 0; });
      const double outputs = replicas * static_cast<double>(choices.experts().size());
      all.push_back(
          {.shape = shape,
           .layout = layout,
           .isa = kernel.isa,
           .routing = kind,
           .tokens = tokens,
           .operations = outputs * 6 * static_cast<double>(shape.hidden * shape.intermediate),
           .bytes = replicas * static_cast<double>(chosen * layer.expert_bytes()),
           .times = layer.measure(choices, tokens)});
    }
  }
  measure_roofs(shape, layout);
  const LayerGpu::Roofs gpu = gpu_.roofs(layout);
  std::vector<ResultLine> lines;
  for (const Measurement& measured : all) lines.push_back(make_line(measured, gpu));
  printer_.add(lines);
  const std::size_t all_lines = plan_->routings.size() * runtime_->options().tokens.size();
  if (all.size() < all_lines) runtime_->leave_if_stop_wanted();
}

void LayerBench::measure_roofs(const LayerShape& shape, const Layout& layout) {
  gauge_.measure_multiply(find_multiply_loop(runtime_->compute().gemm(layout)));
  gauge_.measure_reads();
  gpu_.measure_roofs(shape, layout);
}

double LayerBench::on_gpus(const LayerShape& shape) const {
  return static_cast<double>(gpu_.num_experts(shape)) / static_cast<double>(shape.experts);
}

/// Both places work at once, each on its experts' share: over the runs all have as many rows.
double LayerBench::roof_seconds(const Measurement& measured, const LayerGpu::Roofs& gpu) const {
  const MultiplyLoop& loop = find_multiply_loop(runtime_->compute().gemm(measured.layout));
  const double share = on_gpus(measured.shape);
  const double cpu_seconds = std::max(measured.operations / gauge_.operations_per_second(loop),
                                      measured.bytes / gauge_.bytes_per_second());
  if (share == 0) return cpu_seconds;
  const double gpu_seconds = std::max(measured.operations / gpu.operations_per_second,
                                      measured.bytes / gpu.bytes_per_second);
  return std::max((1 - share) * cpu_seconds, share * gpu_seconds);
}

std::string LayerBench::isa_text(const Measurement& measured, const LayerGpu::Roofs& gpu) const {
  const double share = on_gpus(measured.shape);
  if (share == 0) return std::string(isa_name(measured.isa));
  return share == 1 ? gpu.isa : fmt::format("{}+{}", isa_name(measured.isa), gpu.isa);
}

ResultLine LayerBench::make_line(const Measurement& measured, const LayerGpu::Roofs& gpu) const {
  const double roof = roof_seconds(measured, gpu);
  const double exposed = measured.times.layer - measured.times.parts;
  const double hidden_share = runtime_->grid().experts().size() > 1
                                  ? 1 - exposed / measured.times.exchange
                                  : std::numeric_limits<double>::quiet_NaN();  // nothing travels
  const auto whole = [](std::int64_t value) { return fmt::format("{}", value); };
  const LayerShape& shape = measured.shape;
  return {{"experts", whole(shape.experts)},
          {"hidden", whole(shape.hidden)},
          {"intermediate", whole(shape.intermediate)},
          {"topk", whole(shape.topk)},
          {"routing", std::string(routing_name(measured.routing)), true},
          {"tokens", whole(measured.tokens)},
          {"format", layout_name(measured.layout), true},
          {"isa", isa_text(measured, gpu), true},
          {"threads", whole(runtime_->self().threads)},
          {"us", short_number(measured.times.layer * 1e6)},
          {"gops", short_number(measured.operations / measured.times.layer / 1e9)},
          {"roof_share", short_number(roof / measured.times.layer)},
          {"ranks", whole(runtime_->world().size())},
          {"predicted_us", short_number(measured.times.parts * 1e6)},
          {"share_of_parts", short_number(measured.times.parts / measured.times.layer)},
          {"exchange_us", short_number(measured.times.exchange * 1e6)},
          {"exposed_us", short_number(exposed * 1e6)},
          {"hidden_share", short_number(hidden_share)},
          {"gpu_experts", whole(gpu_.num_experts(shape))},
          {"gpu_only_us", short_number(measured.times.on_gpu * 1e6)},
          {"cpu_only_us", short_number(measured.times.on_cpu * 1e6)},
          {"of_slower", short_number(measured.times.layer /
                                     std::max(measured.times.on_gpu, measured.times.on_cpu))}};
}

}  // namespace

void run_bench_layer(Runtime& runtime) {
  Plan plan;
  agree(runtime.world(), [&] {
    plan = make_plan(runtime);
    (void)result_form(runtime.options());  // before anything is packed
  });
  LayerBench bench(runtime, plan);
  runtime.run_or_end_early("not all lines are there", [&] { bench.run(); });
  bench.end();
}

}  // namespace moesaic
