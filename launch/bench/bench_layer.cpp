#include <fmt/core.h>

#include <algorithm>

#include "base/memory.h"
#include "base/progress.h"
#include "launch/bench/bench_memory.h"
#include "launch/bench/bench_shapes.h"
#include "launch/bench/layer_run.h"
#include "launch/bench/result_table.h"
#include "launch/bench/roofs.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/verbs/verbs.h"
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
  const std::int64_t spare = memory_limit().available_bytes / (2 * runtime.grid().node().size());
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
  if (options.routing != RoutingChoice::skewed) plan.routings.push_back(RoutingKind::even);
  if (options.routing != RoutingChoice::even) plan.routings.push_back(RoutingKind::skewed);
  plan.memory_bytes = weight_memory(runtime, plan);
  return plan;
}

/// One line of the table, before the roofs are known.
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
  [[nodiscard]] std::vector<ResultLine> lines() const;

 private:
  void run_layer(const LayerShape& shape, const Layout& layout);
  [[nodiscard]] bool has_room(const LayerShape& shape, const Layout& layout) const;
  [[nodiscard]] LayerRouting routing(RoutingKind kind, const LayerShape& shape,
                                     std::int64_t tokens) const {
    return {kind, shape, tokens * runtime_->grid().experts().size()};
  }
  /// Rows of the expert that has the most in any test.
  [[nodiscard]] std::int64_t most_rows(const LayerShape& shape) const;
  [[nodiscard]] ResultLine make_line(const Measurement& measured) const;

  const Runtime* runtime_;
  const Plan* plan_;
  Buffer<std::byte> memory_;
  RoofGauge gauge_;
  std::vector<Measurement> measured_;
};

LayerBench::LayerBench(const Runtime& runtime, const Plan& plan)
    : runtime_(&runtime),
      plan_(&plan),
      memory_(plan.memory_bytes),
      gauge_(runtime.world(), *runtime.compute().pool, memory_.span()) {}

void LayerBench::run() {
  const bool silent = !runtime_->is_first() || !runtime_->log().enabled(LogLevel::info);
  Progress progress("layers", silent, [](std::int64_t count) { return fmt::format("{}", count); });
  std::int64_t done = 0;
  for (const LayerShape& shape : plan_->layers) {
    for (const Layout& layout : plan_->layouts) {
      progress.update(done++, std::ssize(plan_->layers) * std::ssize(plan_->layouts));
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
  return room >= 0;
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
  const GemmKernel& kernel = runtime_->compute().gemm(layout);
  const MultiplyLoop& loop = find_multiply_loop(kernel);
  const double replicas = static_cast<double>(runtime_->grid().expert_replicas());
  LayerRun layer(*runtime_, shape, layout, most_rows(shape), memory_.span());
  gauge_.measure_multiply(loop);
  gauge_.measure_reads();
  for (const RoutingKind kind : plan_->routings) {
    for (const std::int64_t tokens : runtime_->options().tokens) {
      runtime_->leave_if_stop_wanted();
      const LayerRouting choices = routing(kind, shape, tokens);
      const std::vector<std::int64_t> rows = choices.rows_of_experts();
      const auto chosen = std::ranges::count_if(rows, [](std::int64_t n) { return n > 0; });
      const double outputs = replicas * static_cast<double>(choices.experts().size());
      measured_.push_back(
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
  gauge_.measure_multiply(loop);
  gauge_.measure_reads();
}

ResultLine LayerBench::make_line(const Measurement& measured) const {
  const MultiplyLoop& loop = find_multiply_loop(runtime_->compute().gemm(measured.layout));
  const double roof = std::max(measured.operations / gauge_.operations_per_second(loop),
                               measured.bytes / gauge_.bytes_per_second());
  const auto whole = [](std::int64_t value) { return fmt::format("{}", value); };
  const LayerShape& shape = measured.shape;
  return {{"experts", whole(shape.experts)},
          {"hidden", whole(shape.hidden)},
          {"intermediate", whole(shape.intermediate)},
          {"topk", whole(shape.topk)},
          {"routing", std::string(routing_name(measured.routing)), true},
          {"tokens", whole(measured.tokens)},
          {"format", layout_name(measured.layout), true},
          {"isa", std::string(isa_name(measured.isa)), true},
          {"threads", whole(runtime_->self().threads)},
          {"us", short_number(measured.times.layer * 1e6)},
          {"gops", short_number(measured.operations / measured.times.layer / 1e9)},
          {"roof_share", short_number(roof / measured.times.layer)},
          {"ranks", whole(runtime_->world().size())},
          {"predicted_us", short_number(measured.times.parts * 1e6)},
          {"share_of_parts", short_number(measured.times.parts / measured.times.layer)}};
}

std::vector<ResultLine> LayerBench::lines() const {
  std::vector<ResultLine> lines;
  for (const Measurement& measured : measured_) lines.push_back(make_line(measured));
  return lines;
}

}  // namespace

void run_bench_layer(Runtime& runtime) {
  Plan plan;
  agree(runtime.world(), [&] { plan = make_plan(runtime); });
  LayerBench bench(runtime, plan);
  runtime.run_or_end_early("not all lines are there", [&] { bench.run(); });
  if (runtime.is_first()) {
    fmt::print("{}", result_table(bench.lines(), runtime.options().output));
  }
}

}  // namespace moesaic
