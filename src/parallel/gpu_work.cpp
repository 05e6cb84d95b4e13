#include "src/parallel/gpu_work.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/choice_plan.h"
#include "src/parallel/result_pieces.h"

namespace moesaic {
namespace {

constexpr double kRowBytes = 2;     // of a number of a row that goes up
constexpr double kResultBytes = 4;  // and of a result

// What the driver is asked for in a layer: copies of rows, of tiles and of results, two kernels;
// for sums also a copy of lists and a kernel (src/moe/device_road.h).
constexpr double kCalls = 5;
constexpr double kCallsWithSums = 7;
// A graph has all of it but the copy of results that are not summed.
constexpr double kCallsOfGraph = 2;
constexpr double kCallsOfGraphWithSums = 1;
/// Kernels that round rows before each of the two.
constexpr double kRoundings = 2;

bool is_by_graph(const CostModel& model, const CostRanks& ranks, double tokens) {
  return model.gpus->has_graphs && ranks.sharer_nodes() == 1 &&
         tokens <= static_cast<double>(cuda::kMostPlannedInputs);
}

double experts_met(const LayerLoad& load) {
  double met = 0;
  for (const auto& [rows, times] : load.busiest_gpu) met += times;
  return met;
}

double rows_of(const LayerLoad& load) {
  double sum = 0;
  for (const auto& [rows, times] : load.busiest_gpu) sum += times * static_cast<double>(rows);
  return sum;
}

}  // namespace

double experts_on_gpus(const CostModel& model, std::size_t layer) {
  return model.gpus ? static_cast<double>(std::ranges::count(model.gpus->experts[layer], true)) : 0;
}

bool sums_on_gpu(const CostModel& model, const CostRanks& ranks, std::size_t layer) {
  return model.gpus && model.gpus->may_sum && ranks.sharers() == 1 &&
         experts_on_gpus(model, layer) >= static_cast<double>(model.num_experts);
}

StepWork::GpuLayers gpu_layers(const CostModel& model, const CostRanks& ranks,
                               const AlikeLayers& layers, const LayerLoad& load) {
  const bool has_sums = sums_on_gpu(model, ranks, layers.first);
  const bool is_graph = is_by_graph(model, ranks, load.gpu_tokens);
  const double rows = rows_of(load);
  const auto hidden = static_cast<double>(model.hidden);
  StepWork::GpuLayers work;
  double calls = has_sums ? kCallsWithSums : kCalls;
  for (const CostWeights& with : model.layers[layers.first].expert) {
    const std::string_view name =
        kernels_name(model.gpus->kernels, model.gpus->activations, with.format);
    work.kernels.push_back({.name = std::string(name),
                            .flops = layers.count * 2 * rows * with.weights,
                            .weight_bytes = layers.count * experts_met(load) * with.bytes});
    if (name == "block_scaled" && work.kernels.size() == 1) calls += kRoundings;
  }
  if (is_graph) calls = has_sums ? kCallsOfGraphWithSums : kCallsOfGraph;
  const double parts = ranks.sharer_nodes() == 1
                           ? 1
                           : std::clamp(experts_met(load), 1.0, static_cast<double>(kResultPieces));
  work.bytes_up = layers.count * load.gpu_tokens * hidden * kRowBytes;
  work.bytes_down = layers.count * (has_sums ? load.gpu_tokens : rows) * hidden * kResultBytes;
  work.calls = layers.count * parts * calls;
  work.waits = layers.count * parts;
  return work;
}

double planned_for_gpu(const CostModel& model, const CostRanks& ranks, const LayerLoad& load) {
  const bool plans_itself = model.gpus->may_sum && ranks.sharers() == 1 && load.busiest.empty() &&
                            is_by_graph(model, ranks, load.gpu_tokens);
  return plans_itself ? 0 : rows_of(load);
}

GpuSeconds gpu_seconds(const StepWork::GpuLayers& layers, const MachineRates& machine) {
  require(machine.gpu.has_value(), ErrorKind::usage,
          "{}: no GPU was measured; start moesaic doctor --measure where there is one",
          machine.path);
  const GpuRates& gpu = *machine.gpu;
  GpuSeconds seconds{.calls = layers.calls * gpu.call_seconds,
                     .waits = layers.waits * gpu.wait_seconds,
                     .up = layers.bytes_up / gpu.upload_bytes_per_second,
                     .down = layers.bytes_down / gpu.download_bytes_per_second};
  for (const StepWork::GpuLayers::Kernels& kernels : layers.kernels) {
    const auto found = gpu.flops_per_second.find(kernels.name);
    require(found != gpu.flops_per_second.end(), ErrorKind::usage,
            "{}: kernels of {} were not measured on a GPU ({})", machine.path, kernels.name,
            gpu.name);
    seconds.reads += kernels.weight_bytes / gpu.read_bytes_per_second;
    seconds.products += kernels.flops / found->second;
  }
  return seconds;
}

}  // namespace moesaic
